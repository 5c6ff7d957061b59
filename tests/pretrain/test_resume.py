"""A run that was stopped, killed or broken off goes on as if nothing had happened; what does not fit is refused."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from contract.errors import DataError, Failure, Interrupted, UsageError
from encoders.checkpoint import open_checkpoint
from pretrain import loop, resume
from pretrain.resume import RunFolder
from pretrain.settings import shape_of
from pretrain.store import Store
from pretrain.telemetry import StepFigures, Telemetry
from tests.pretrain.tiny_runs import go, ledger, metrics, tiny_settings, tiny_store

ROOT = Path(__file__).parents[2]
WITH_DROPOUT: dict[str, Any] = {"dropout": 0.1, "steps": 9, "micro_tokens": 60}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def uninterrupted(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    go(store, tiny_settings(store, **WITH_DROPOUT), out)
    return out


def same(first: Path, second: Path) -> None:
    """Equal weights to the bit, the same samples in the same order, and the same figures but for times."""
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    assert ledger(first) == ledger(second)
    for name in ("step", "mlm_loss", "pair_loss", "gradient_norm", "learning_rate", "tokens"):
        assert [line[name] for line in metrics(first)] == [line[name] for line in metrics(second)], name


def after(step: int, action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when an update has been made."""
    told = Telemetry.stepped

    def tell(self: Telemetry, figures: StepFigures, elapsed_s: float) -> None:
        told(self, figures, elapsed_s)
        if figures.step == step:
            action()

    monkeypatch.setattr(Telemetry, "stepped", tell)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_polite_stop_saves_and_the_same_bits_follow(
    store: Store,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    number: signal.Signals,
) -> None:
    out, settings = tmp_path / "out", tiny_settings(store, **WITH_DROPOUT)
    with monkeypatch.context() as patch:
        after(step, lambda: os.kill(os.getpid(), number), patch)
        with pytest.raises(Interrupted, match=f"interrupted after {step} steps; .* --resume"):
            go(store, settings, out)
    assert open_checkpoint(out).record["step"] == step
    assert RunFolder(out).steps() == [step]
    go(store, settings, out, go_on=True)
    same(uninterrupted, out)
    assert not RunFolder(out).steps()


@pytest.mark.parametrize("place", ["optimizer", "publish", "prune"])
def test_a_save_that_is_cut_short_leaves_the_checkpoint_before(
    store: Store, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    out, settings = tmp_path / "out", tiny_settings(store, **WITH_DROPOUT)
    calls = 0

    def die(*_: Any, **__: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise SystemExit("killed")

    def dying(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            die()
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        if place == "optimizer":
            patch.setattr(torch, "save", dying(torch.save))
        elif place == "publish":
            patch.setattr(resume, "publish", dying(resume.publish))
        else:
            patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        with pytest.raises(SystemExit):
            go(store, settings, out, save_steps=2, keep=1)
    assert open_checkpoint(out).record["step"] in (2, 4, 6, 8)
    go(store, settings, out, go_on=True, save_steps=3)
    same(uninterrupted, out)


def test_a_run_without_any_checkpoint_starts_again(
    store: Store, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, settings = tmp_path / "out", tiny_settings(store, **WITH_DROPOUT)

    def leave() -> None:
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        after(3, leave, patch)
        with pytest.raises(SystemExit):
            go(store, settings, out)
    assert len(ledger(out)) == 3
    go(store, settings, out, go_on=True)
    same(uninterrupted, out)


def test_going_on_where_nothing_was_begun_begins(store: Store, uninterrupted: Path, tmp_path: Path) -> None:
    go(store, tiny_settings(store, **WITH_DROPOUT), tmp_path / "out", go_on=True)
    same(uninterrupted, tmp_path / "out")


@pytest.mark.parametrize("optimizer", ["lamb-google", "lamb-nvidia"])
def test_lamb_goes_on_to_the_bit(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    settings = tiny_settings(store, optimizer=optimizer, steps=6)
    go(store, settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        after(3, lambda: os.kill(os.getpid(), signal.SIGTERM), patch)
        with pytest.raises(Interrupted):
            go(store, settings, tmp_path / "out")
    go(store, settings, tmp_path / "out", go_on=True)
    same(tmp_path / "whole", tmp_path / "out")


def stopped(store: Store, out: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    with monkeypatch.context() as patch:
        after(2, lambda: os.kill(os.getpid(), signal.SIGTERM), patch)
        with pytest.raises(Interrupted):
            go(store, tiny_settings(store, **changes), out)


def test_another_run_or_store_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    stopped(store, out, monkeypatch)
    with pytest.raises(UsageError, match=r"other settings: recipe\.learning_rate \(0\.001 before, 0\.01 now\)"):
        go(store, tiny_settings(store, learning_rate=0.01), out, go_on=True)
    with pytest.raises(UsageError, match=r"config\.num_hidden_layers"):
        go(store, tiny_settings(store, layers=2), out, go_on=True)
    changed = replace(tiny_settings(store), store="0" * 64)
    with pytest.raises(UsageError, match="the store has changed since the run"):
        go(store, changed, out, go_on=True)
    with pytest.raises(UsageError, match="unfinished run; pass --resume"):
        go(store, tiny_settings(store), out)


def test_folders_are_not_overwritten_by_accident(store: Store, uninterrupted: Path, tmp_path: Path) -> None:
    settings = tiny_settings(store)
    for go_on in (True, False):
        with pytest.raises(UsageError, match="finished run; give another folder"):
            go(store, settings, uninterrupted, go_on=go_on)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="a folder of other things"):
        go(store, settings, foreign, overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        go(store, settings, tmp_path / "file")
    go(store, settings, tmp_path / "again")
    go(store, tiny_settings(store, steps=2), tmp_path / "again", overwrite=True)
    assert len(ledger(tmp_path / "again")) == 2


def test_a_full_disk_is_one_sentence_and_keeps_the_checkpoint_before(
    store: Store, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, settings = tmp_path / "out", tiny_settings(store, **WITH_DROPOUT)
    saves = 0
    real = torch.save

    def full(*args: Any, **kwargs: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(Failure, match=r"no space is left for the checkpoint of step 6 .*step 3 is whole.*--resume"):
            go(store, settings, out, save_steps=3)
    assert open_checkpoint(out).record["step"] == 3
    go(store, settings, out, go_on=True)
    same(uninterrupted, out)


def test_a_run_that_could_not_be_saved_is_not_begun(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(UsageError, match=r"need 0\.0 GB and .* has 0.0 GB free"):
        go(store, tiny_settings(store), tmp_path / "out")


def test_a_damaged_checkpoint_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    stopped(store, out, monkeypatch)
    path = RunFolder(out).step_folder(2) / "optimizer.pt"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Failure, match="step-00000002 is damaged"):
        go(store, tiny_settings(store), out, go_on=True)


def test_a_checkpoint_with_another_tokenizer_is_refused(store: Store, uninterrupted: Path, tmp_path: Path) -> None:
    other = tiny_store(tmp_path / "other", "unigram")
    with pytest.raises(DataError, match="is not the one that made"):
        shape_of(other, open_checkpoint(uninterrupted))
    assert shape_of(store, open_checkpoint(uninterrupted)).hidden_size == 32


def test_going_on_from_a_checkpoint_starts_with_its_weights(store: Store, uninterrupted: Path, tmp_path: Path) -> None:
    settings = replace(
        tiny_settings(store, steps=1, warmup_steps=0), start=str(uninterrupted)
    )  # the rate of the last update is 0
    go(store, settings, tmp_path / "out")
    before, now = load_file(uninterrupted / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(before[name], now[name]) for name in before)


def test_settings_say_which_update_a_killed_process_would_repeat(store: Store) -> None:
    assert loop._is_over(tiny_settings(store), 8, 0.0)
    assert not loop._is_over(tiny_settings(store), 7, 1e9)
    assert loop._is_over(tiny_settings(store, minutes=1.0), 1, 60.0)


COMMAND = [
    *(sys.executable, "-m", "robal", "pretrain", "run"),
    *("--layers", "1", "--max-length", "32", "--batch-size", "4", "--steps", "40", "--ledger-ids", "--save-steps", "7"),
]


@pytest.mark.slow
def test_kill_9_at_any_moment_then_the_same_bits(store: Store, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def command(out: Path) -> list[str]:
        return [*COMMAND, str(store.folder), "--out", str(out)]

    subprocess.run(command(tmp_path / "whole"), cwd=ROOT, env=environment, check=True, capture_output=True)
    out = tmp_path / "killed"
    seen: list[dict[str, Any]] = []
    for line in (10, 21, 30):  # in between checkpoints, just at one, and later
        process = subprocess.Popen(
            [*command(out), "--resume"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < until:
            path = RunFolder(out).ledger
            if path.exists() and path.read_text().count("\n") >= line:
                break
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL  # it was in the middle of its work
        seen += [entry for entry in ledger_of_a_killed_run(out) if entry not in seen]
    subprocess.run([*command(out), "--resume"], cwd=ROOT, env=environment, check=True, capture_output=True)
    same(tmp_path / "whole", out)
    assert all(entry in ledger(tmp_path / "whole") for entry in seen)  # what was lost and repeated was the same too


def ledger_of_a_killed_run(out: Path) -> list[dict[str, Any]]:
    path = RunFolder(out).ledger
    whole = path.read_text().rpartition("\n")[0]
    path.write_text(whole + "\n")
    return ledger(out)
