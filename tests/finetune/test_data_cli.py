"""``robal data check`` as a user meets it."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from encoders.checkpoint import open_checkpoint
from tests.finetune.test_cli import ENVIRONMENT, ROOT, command, robal
from tests.tiny import tiny_checkpoint

Write = Callable[[str, str | bytes], Path]
CLEAN = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))


def test_a_clean_file_is_exit_code_0_without_torch(write: Write) -> None:
    path = write("train.csv", CLEAN)
    code = (
        "import sys, robal\n"
        f"sys.argv = ['robal', 'data', 'check', {str(path)!r}]\n"
        "try: robal.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules"
    )
    run = subprocess.run([*command()[:1], "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "40 rows" in run.stdout
    assert "Nothing that would spoil a training; 0 findings" in run.stdout


def test_what_spoils_a_training_is_marked_and_exit_code_1(write: Write) -> None:
    train = write("train.csv", CLEAN + "TEXT 1,a\n")
    dev = write("dev.csv", "text,label\ntext 2,a\nnew,c\n")
    run = robal("data", "check", train, dev)
    assert (run.returncode, run.stderr) == (1, "")
    spoiling = [line for line in run.stdout.splitlines() if line.startswith("spoils")]
    assert len(spoiling) == 3
    assert "conflicting labels in train.csv: 1 (line 3, 42)" in spoiling[0]
    assert "overlap in dev.csv: 1 (line 2)" in spoiling[1]
    assert "unseen labels in dev.csv: 1 (line 3): 'c'" in spoiling[2]
    assert "3 of" in run.stdout.splitlines()[-1]
    as_json = robal("data", "check", train, dev, "--json")
    assert as_json.returncode == 1
    report = json.loads(as_json.stdout)
    assert report["spoils"] is True
    assert [f["kind"] for f in report["findings"] if f["spoils"]] == ["conflicting labels", "overlap", "unseen labels"]
    assert report["files"][1] | {"path": ""} == {
        "file": "dev.csv",
        "path": "",
        "rows": 2,
        "unusable_rows": 0,
        "columns": ["text", "label"],
        "characters": {"mean": 4.5, "least": 3, "median": 3, "p95": 6, "p99": 6, "most": 6},
        "words": {"mean": 1.5, "least": 1, "median": 1, "p95": 2, "p99": 2, "most": 2},
        "labels": {"a": 1, "c": 1},
    }


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["no.csv"], ["no.csv does not exist"]),
        (["--max-length", 8, "FILE"], ["--max-length 8", "--model"]),
        (["--model", "nope", "FILE"], ["--model nope", "mini-albert"]),
        (["--text-column", "words", "FILE"], ["no column 'words'", "'text'"]),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(write: Write, arguments: list[object], parts: list[str]) -> None:
    path = write("train.csv", CLEAN)
    run = robal("data", "check", *(path if argument == "FILE" else argument for argument in arguments))
    assert (run.returncode, run.stdout) == (2, "")
    assert "Traceback" not in run.stderr
    for part in parts:
        assert part in run.stderr


def test_tokens_of_a_folder_and_of_a_preset(write: Write, tmp_path: Path) -> None:
    folder, path = tiny_checkpoint(tmp_path / "m", labels=("a", "b")), write("train.csv", CLEAN)
    run = robal("data", "check", path, "--model", folder, "--max-length", 4, "--json")
    encoder = open_checkpoint(folder).text_encoder
    assert encoder is not None
    lengths = [encoder.encode(f"text {n}").full_length for n in range(40)]
    tokens = json.loads(run.stdout)["files"][0]["tokens"]
    assert (tokens["least"], tokens["most"], tokens["max_length"]) == (min(lengths), max(lengths), 4)
    assert tokens["cut_tokens"] == sum(max(0, length - 4) for length in lengths)
    run = robal("data", "check", path, "--model", "mini-bert")
    assert run.returncode == 0, run.stderr
    assert "learning a tokenizer from 40 texts" in run.stderr
    assert "at 512 tokens 0 rows lose 0 tokens" in run.stdout


def test_ctrl_c_is_one_sentence(write: Write, tmp_path: Path) -> None:
    path = write("big.csv", "text,label\n" + "".join(f"some text with a number {n},{n % 3}\n" for n in range(600_000)))
    process = subprocess.Popen(
        command("data", "check", path),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error.startswith("robal: interrupted")
    assert "Traceback" not in error
    assert out == ""
