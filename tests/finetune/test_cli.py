"""The commands as a user meets them: real processes, their output, exit codes and what is on disk."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.encoding import TextEncoder
from encoders.checkpoint import load_classifier, open_checkpoint
from tests.tiny import tiny_bundle, tiny_checkpoint

Write = Callable[[str, str | bytes], Path]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
CSV = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "robal", *map(str, arguments)]


def robal(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)


def mistakes(write: Write, folder: Path) -> dict[str, tuple[list[object], list[str]]]:
    """name: (arguments, parts of the answer)."""
    train, base = write("train.csv", CSV), tiny_checkpoint(folder / "base", labels=("a", "b"))
    bundle = tiny_bundle(folder / "bundle", labels=("a", "b"))
    weightless = tiny_checkpoint(folder / "weightless")
    (weightless / "model.safetensors").unlink()
    start = ["finetune", "--model", base, "--out", folder / "out", "--train"]
    return {
        "no such file": ([*start, folder / "no.csv"], ["no.csv does not exist"]),
        "empty file": ([*start, write("empty.csv", "")], ["empty.csv is empty"]),
        "header only": ([*start, write("head.csv", "text,label\n")], ["head.csv", "no rows"]),
        "missing column": ([*start, write("columns.csv", "words,label\nx,a\n")], ["'words'", "--text-column"]),
        "one class": ([*start, write("one.csv", "text,label\nx,a\ny,a\n")], ["only the class 'a'"]),
        "unseen in dev": (
            [*start, train, "--dev", write("dev.csv", "text,label\nx,a\ny,c\n")],
            ["dev.csv", "'c'", "line 3 (row 2)"],
        ),
        "no weights": (["finetune", "--train", train, "--out", folder / "out", "--model", weightless], ["weightless"]),
        "no such model": (["finetune", "--train", train, "--out", folder / "out", "--model", "nope"], ["mini-albert"]),
        "out holds a checkpoint": (["finetune", "--train", train, "--model", base, "--out", base], ["--overwrite"]),
        "wrong value": ([*start, train, "--warmup", "2"], ["--warmup is 2.0"]),
        "wrong flag": ([*start, train, "--nope"], ["--nope"]),
        "evaluate: unknown label": (
            ["evaluate", bundle, "--data", write("test.csv", "text,label\nx,q\n")],
            ["test.csv", "'q'"],
        ),
        "evaluate: no such model": (["evaluate", folder / "none", "--data", train], ["none"]),
        "predict: wrong output": (["predict", base, "--data", train, "--out", folder / "out.txt"], [".csv or .jsonl"]),
        "predict: its own input": (["predict", base, "--data", train, "--out", train], ["is the file of the texts"]),
        "predict: bad rows": (
            ["predict", base, "--data", write("bad.csv", "text,n\nx,1\n ,2\n"), "--out", folder / "out.csv"],
            ["1 of 2 rows", "--skip-bad-rows"],
        ),
    }


@pytest.mark.slow
def test_every_mistake_is_one_message_exit_code_2_and_nothing_on_disk(write: Write, tmp_path: Path) -> None:
    cases = mistakes(write, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for name, (arguments, parts) in cases.items():
        run = robal(*arguments)
        assert run.returncode == 2, f"{name}: {run.stderr}"
        assert "Traceback" not in run.stderr, name
        for part in parts:
            assert part in run.stderr, f"{name}: {run.stderr}"
        assert not run.stdout, name
    assert sorted(tmp_path.rglob("*")) == before


def test_a_data_mistake_is_answered_without_loading_torch(write: Write, tmp_path: Path) -> None:
    code = (
        "import sys, robal\n"
        f"sys.argv = ['robal', 'finetune', '--train', {str(tmp_path / 'no.csv')!r}, '--model', 'x', '--out', 'y']\n"
        "try: robal.main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == ["2", "False", "False"], run.stderr


@pytest.mark.slow
def test_the_whole_way_by_commands(write: Write, tmp_path: Path) -> None:
    """A preset twice with equal bytes, evaluation as table and JSON, predictions of a bundle."""
    train = write("train.csv", "text,label\n" + "".join(f"{['good', 'bad'][n % 2]} {n},{n % 2}\n" for n in range(60)))
    flags = ["--label-names", "0=up,1=down", "--epochs", 1, "--dev-fraction", 0.2, "--max-length", 32]
    for name in ("a", "b"):
        run = robal("finetune", "--train", train, "--model", "mini-albert", "--out", tmp_path / name, *flags)
        assert run.returncode == 0, run.stderr
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (tmp_path / "b" / "tokenizer.json").read_bytes()
    assert "12 dev rows (set aside from train)" in run.stderr
    assert "precision" in run.stdout
    assert (tmp_path / "a.log.jsonl").is_file()
    checkpoint = open_checkpoint(tmp_path / "a")
    assert isinstance(checkpoint.text_encoder, TextEncoder)
    assert checkpoint.text_encoder.max_length == 32
    assert "--label-names" in checkpoint.record["command"]

    run = robal("evaluate", tmp_path / "a", "--data", train, "--json", "--training-data")
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert (figures["rows"], list(figures["per_class"])) == (60, ["up", "down"])
    run = robal("evaluate", tmp_path / "a", "--data", train, "--training-data")
    assert f"accuracy {figures['accuracy']:.4f}" in run.stdout
    assert "up" in run.stdout

    run = robal("predict", tmp_path / "a", "--data", train, "--out", tmp_path / "out.csv")
    assert run.returncode == 0, run.stderr
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("row,text,label,score", 61)
    again = robal("predict", tmp_path / "a", "--data", train, "--out", tmp_path / "out.csv")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


def test_a_bundle_is_scored_without_torch(write: Write, tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", labels=("a", "b"))
    data, out = write("data.csv", CSV), tmp_path / "out.jsonl"
    code = (
        "import sys, robal\n"
        f"sys.argv = ['robal', 'predict', {str(bundle)!r}, '--data', {str(data)!r}, '--out', {str(out)!r}]\n"
        "try: robal.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(out.read_text().splitlines()) == 40
    assert "40 rows labelled" in run.stdout


def training(base: Path, train: Path, out: Path) -> subprocess.Popen[str]:
    """A run that goes on for ever and saves often: it learns, so that checkpoint after checkpoint is better."""
    flags = ["--epochs", 100_000, "--patience", 0, "--metric", "loss", "--learning-rate", 1e-4, "--batch-size", 40]
    arguments = command("finetune", "--train", train, "--dev", train, "--model", base, "--out", out, *flags)
    return subprocess.Popen(arguments, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not path.exists():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_checkpoint(write: Write, tmp_path: Path) -> None:
    base, train = tiny_checkpoint(tmp_path / "base", labels=("a", "b")), write("train.csv", CSV)
    for attempt in range(3):
        out = tmp_path / f"out{attempt}"
        process = training(base, train, out)
        wait_for(out / "robal.json", process)
        time.sleep(0.1 + 0.17 * attempt)
        process.kill()
        process.wait()
        checkpoint = open_checkpoint(out)
        load_classifier(checkpoint)
        assert checkpoint.record["metrics"]["dev"]["loss"] > 0


@pytest.mark.slow
def test_ctrl_c_says_what_was_kept(write: Write, tmp_path: Path) -> None:
    base, train, out = tiny_checkpoint(tmp_path / "base", labels=("a", "b")), write("train.csv", CSV), tmp_path / "out"
    process = training(base, train, out)
    wait_for(out / "robal.json", process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    last = error.strip().splitlines()[-1]
    assert "interrupted after" in last
    assert f"{out} holds the best checkpoint so far" in last
    assert "Traceback" not in error
    load_classifier(open_checkpoint(out))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")], "nothing half-written is left"
