"""An interrupted run goes on to the weights that it would have had, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from contract.errors import UsageError
from finetune.cli import app
from finetune.config import TrainingConfig
from finetune.events import Progress
from finetune.loop import train
from finetune.resume import State, read_state, write_state
from tests.finetune.test_loop import Recorder, data, model_and_encoder, parameters
from tests.tiny import tiny_checkpoint

ROOT = Path(__file__).parents[2]
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"ema_decay": 0.9, "r_drop": 1.0, "layer_decay": 0.9},
        {"accumulate": 2, "schedule": "polynomial", "class_weights": "balanced"},
    ],
)
@pytest.mark.parametrize("stop", [3, 4, 9])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, recipe: dict[str, object], stop: int) -> None:
    """4 steps make an epoch: stopped inside one, at its end, and in another."""
    config = TrainingConfig(
        **{"epochs": 3, "batch_size": 4, "learning_rate": 0.01, "metric": "accuracy", "max_length": 64} | recipe  # type: ignore[arg-type]
    )

    def go(stop: int | None, resume: State | None) -> tuple[torch.Tensor, Recorder, Progress]:
        model, encoder = model_and_encoder(**DROPOUT)
        torch.manual_seed(5 if resume is None else 99)
        watch, progress = Recorder(), Progress()

        def evaluate() -> dict[str, float]:
            return {"accuracy": 1 / (1 + progress.steps), "loss": float(parameters(model).sum())}

        def run() -> None:
            train(
                model,
                data(encoder, 16),
                config,
                precision="fp32",
                evaluate=evaluate,
                keep=lambda progress: None,
                watch=watch,
                progress=progress,
                save=lambda state: write_state(tmp_path / "state", state | {"identity": {}}),
                resume=resume,
                stopping=lambda: progress.steps == stop,
            )

        if stop:
            with pytest.raises(KeyboardInterrupt):
                run()
        else:
            run()
        return parameters(model), watch, progress

    whole, seen, progress = go(None, None)
    _, before, _ = go(stop, None)
    resumed, after, progress_again = go(None, read_state(tmp_path / "state", {}))
    assert torch.equal(whole, resumed)
    assert [step.loss for step in seen.steps] == [step.loss for step in before.steps + after.steps]
    assert progress.evaluations == progress_again.evaluations
    assert progress.best == progress_again.best
    assert (progress.steps, progress.epochs, progress.tokens) == (
        progress_again.steps,
        progress_again.epochs,
        progress_again.tokens,
    )


def test_a_state_of_another_run_or_no_state_at_all_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "state", {"identity": {"--seed": 1, "--epochs": 3}})
    with pytest.raises(UsageError, match=r"another --seed \(1; now 2\)"):
        read_state(tmp_path / "state", {"--seed": 2, "--epochs": 3})
    (tmp_path / "state").write_bytes(b"broken")
    with pytest.raises(UsageError, match="cannot be read"):
        read_state(tmp_path / "state", {})


def test_a_killed_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """kill -9 in the middle of an epoch, then the same command with --resume."""
    model = tiny_checkpoint(tmp_path / "model", "roberta", **DROPOUT)
    rows = "".join(f"{'a good film ' * (n % 5)}{n},{('negative', 'positive')[n % 2]}\n" for n in range(80))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)

    def command(out: str) -> list[str]:
        options = {"train": tmp_path / "train.csv", "model": model, "out": tmp_path / out, "epochs": 4, "batch-size": 4}
        options |= {"save-minutes": 0, "patience": 0, "learning-rate": 1e-3}
        return ["finetune", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]

    assert CliRunner().invoke(app, command("whole")).exit_code == 0
    log = tmp_path / "killed.log.jsonl"
    child = subprocess.Popen([sys.executable, ROOT / "robal.py", *command("killed")], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_bytes().count(b'"seconds"') < 25:  # 18 steps make an epoch
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    state = tmp_path / "killed.resume"
    at = torch.load(state, weights_only=True)["progress"]["steps"]
    assert 18 < at < 72, "killed after an evaluation and before the end"

    again = CliRunner().invoke(app, command("killed"))
    assert isinstance(again.exception, UsageError)
    assert "--resume" in str(again.exception)
    other = CliRunner().invoke(app, [*command("killed"), "--resume", "--seed", "9"])
    assert "another --seed (0; now 9)" in str(other.exception)
    finished = CliRunner().invoke(app, [*command("killed"), "--resume"])
    assert finished.exit_code == 0, finished.output
    assert f"going on after step {at}" in finished.output
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert not state.exists()
    losses = [
        [json.loads(line)["loss"] for line in path.read_text().splitlines() if '"seconds"' in line]
        for path in (tmp_path / "whole.log.jsonl", log)
    ]
    assert len(losses[0]) == 72
    assert losses[0] == losses[1]
