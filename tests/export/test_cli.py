import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import robal
from contract.manifest import load_manifest
from export import verify
from tests.tiny import tiny_bundle, tiny_checkpoint

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "robal", "export", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )


def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int | str | None, str]:
    """The same entry point without a new process: (exit code, what it says on stderr)."""
    monkeypatch.setattr(sys, "argv", ["robal", "export", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        robal.main()
    return caught.value.code, capsys.readouterr().err


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "checkpoint")


def test_a_checkpoint_becomes_a_bundle(tmp_path: Path, checkpoint: Path) -> None:
    done = run(checkpoint, "--out", tmp_path / "mood")
    assert done.returncode == 0, done.stderr
    assert load_manifest(tmp_path / "mood").name == "mood"
    assert done.stderr.splitlines() == [
        "reading the model ...",
        "writing the fp32 graph ...",
        "comparing fp32 logits ...",
        "writing the int8 graph ...",
        "comparing int8 logits ...",
    ]
    for piece in (
        "albert, 2 labels, up to 64 tokens",
        "8,388 stored, 14,",
        "x the unique parameters",
        "max |logit difference|",
        "over 42 cases (limit",
        "unchecked: export with --eval FILE",
        str(tmp_path / "mood"),
    ):
        assert piece in done.stdout
    again = run(checkpoint, "--out", tmp_path / "mood", "--overwrite", "--name", "moods")
    assert again.returncode == 0, again.stderr
    assert load_manifest(tmp_path / "mood").name == "moods"


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path, checkpoint: Path) -> None:
    done = run(tmp_path / "nothing", "--out", tmp_path / "bundle")
    assert (done.returncode, done.stdout) == (2, "")
    said = done.stderr.splitlines()
    assert said[0] == "reading the model ..."
    assert said[1].startswith(f"robal: {tmp_path / 'nothing'} is not a folder")
    assert len(said) == 2
    assert not (tmp_path / "bundle").exists()


def test_an_interrupt_is_one_sentence_and_leaves_nothing(tmp_path: Path, checkpoint: Path) -> None:
    arguments = ("mini-roberta", "--random-weights", 0, "--tokenizer", checkpoint, "--out", tmp_path / "out" / "bundle")
    child = subprocess.Popen(command(*arguments), cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("comparing fp32 logits"):
            child.send_signal(signal.SIGINT)
            break
    rest = child.stderr.read()
    assert child.wait(60) == 130, rest
    assert rest == f"robal: interrupted; {tmp_path / 'out' / 'bundle'} is as it was before.\n"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{tmp}/nothing", "--out", "{tmp}/b"], 2, "nothing is not a folder"),
        (["{tmp}", "--out", "{tmp}/b"], 2, "has no config.json"),
        (["{checkpoint}", "--out", "{bundle}"], 2, "choose another --out or add --overwrite"),
        (["{checkpoint}", "--out", "{checkpoint}", "--overwrite"], 2, "is not a bundle, so it will not be overwritten"),
        (["{bundle}", "--out", "{tmp}/b"], 2, "is a bundle already"),
        (["albert-base", "--out", "{tmp}/b"], 2, "is a preset: a shape without weights"),
        (["albert-bas", "--random-weights", "0", "--tokenizer", "{bundle}", "--out", "{tmp}/b"], 2, "did you mean"),
        (["albert-base", "--random-weights", "0", "--out", "{tmp}/b"], 2, "needs --tokenizer"),
        (["{checkpoint}", "--tokenizer", "{bundle}", "--out", "{tmp}/b"], 2, "goes with --random-weights"),
        (["{checkpoint}"], 2, "--out"),
        (["{checkpoint}", "--out", "{checkpoint}/config.json/b"], 2, "is not a folder that you may write to"),
    ],
)
def test_mistakes(
    tmp_path: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    before = sorted(tmp_path.iterdir())
    places = {"tmp": tmp_path, "checkpoint": checkpoint, "bundle": bundle}
    found, said = run_here(monkeypatch, capsys, *(argument.format(**places) for argument in arguments))
    assert (found, message in said) == (code, True), said
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_gate_is_exit_code_1(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(verify.MAX_SIZE_RATIO, "fp32", 0.1)
    monkeypatch.setattr("export.verify.GRAPH_ALLOWANCE_BYTES", 0)
    code, said = run_here(monkeypatch, capsys, checkpoint, "--out", tmp_path / "bundle")
    assert code == 1
    assert "bytes of unique parameters allow" in said
    assert not (tmp_path / "bundle").exists()


def test_help_teaches_without_loading_torch() -> None:
    code = (
        "import sys, robal; sys.argv[1:] = ['export', '--help']\n"
        "try: robal.main()\n"
        "finally: assert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for piece in ("robal export runs/spam --out bundles/spam", "--random-weights", "--overwrite", "--name"):
        assert piece in done.stdout
