import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from contract.errors import MissingExtra
from pretrain.telemetry import StepFigures, Telemetry, measure_peak, require_tensorboard

FIGURES = StepFigures(
    step=1,
    epoch=0,
    learning_rate=1e-4,
    mlm_loss=5.123456789,
    pair_loss=None,
    pair_accuracy=None,
    gradient_norm=1.5,
    samples=4,
    tokens=100,
    masked=15,
    masked_rate=0.15,
    padding_share=0.0,
    seconds=0.5,
    load_seconds=0.01,
    wait_seconds=0.01,
    tokens_per_second=200.0,
    flops_per_second=1e9,
    peak_share=0.3,
    sent_bytes=0,
    at_word_frequencies=False,
)


def telemetry(path: Path | None, **changes: object) -> Telemetry:
    values = {"tensorboard": None, "total": 10, "in_seconds": False, "entropy": 6.0, **changes}
    return Telemetry(path, **values)  # type: ignore[arg-type]


def test_every_step_and_look_is_a_line(tmp_path: Path) -> None:
    with telemetry(tmp_path / "metrics.jsonl") as told:
        told.stepped(FIGURES, 1.5)
        told.stepped(replace(FIGURES, step=2, pair_accuracy=0.75, pair_loss=0.5), 2.0)
        told.evaluated(2, {"mlm_loss": 4.5})
    first, second, look = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (first["kind"], first["step"], first["elapsed_s"], first["mlm_loss"]) == ("step", 1, 1.5, 5.12346)
    assert first["pair_accuracy"] is None
    assert second["pair_accuracy"] == 0.75
    assert look == {"kind": "heldout", "step": 2, "mlm_loss": 4.5}


def test_quiet_lines_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pretrain.telemetry.QUIET_S", 0.0)
    with telemetry(tmp_path / "metrics.jsonl") as told:
        told.stepped(FIGURES, 1.5)
        told.note("a note with [brackets]")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 1 (10%): loss 5.123 (word frequencies 6.00), 200 tokens/s, 30% of peak" in captured.err
    assert "a note with [brackets]" in captured.err


def test_ranks_that_do_not_lead_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with telemetry(None) as told:
        told.stepped(FIGURES, 1.5)
        told.evaluated(1, {"mlm_loss": 4.5})
        told.note("nothing")
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is not None, reason="tensorboard is installed")
def test_tensorboard_is_asked_for_by_its_name() -> None:
    with pytest.raises(MissingExtra, match="pip install tensorboard"):
        require_tensorboard()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    with telemetry(tmp_path / "metrics.jsonl", tensorboard=tmp_path / "board") as told:
        told.stepped(FIGURES, 1.5)
        told.evaluated(1, {"mlm_loss": 4.5})
    (events,) = (tmp_path / "board").iterdir()
    content = events.read_bytes()
    for tag in (b"train/mlm_loss", b"train/unigram_entropy", b"heldout/mlm_loss"):
        assert tag in content


def test_the_peak_is_a_plausible_rate() -> None:
    assert 1e8 < measure_peak(torch.device("cpu"), torch.float32, seconds=0.05) < 1e14
