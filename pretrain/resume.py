"""The folder of a run, and going on after any interruption.

    OUT/config.json, model.safetensors, tokenizer.json, ...     the newest checkpoint: what `robal finetune` takes
    OUT/run/settings.json                                       what the run is
    OUT/run/metrics.jsonl                                       a line for each step
    OUT/run/ledger.jsonl                                        which samples each step trained on
    OUT/run/step-00000500/{model/, optimizer.pt, state.json}    where to go on; gone when the run is finished

A step folder appears whole or not at all. The model files in OUT are hard links to those of the newest one, replaced
one by one. There is no state of random generators to save: every random choice is a function of the seed and of the
number of a step or sample. So the same store, settings and position give the same samples, on one rank the same bits.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from contract.errors import Failure, UsageError
from contract.storage import read_json, replace_folder, write_atomic, write_json
from encoders.checkpoint import load_masked_lm, load_pretraining, open_checkpoint, save_checkpoint
from encoders.heads import Model, PretrainingModel
from pretrain.batches import Position
from pretrain.distributed import World, like, whole
from pretrain.flops import build_model
from pretrain.settings import Settings, differences, listing_of
from pretrain.store import Store

LOGS = ("metrics.jsonl", "ledger.jsonl")
_STEP = re.compile(r"step-(\d{8})")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """How far a run is."""

    step: int
    """Updates that are done."""
    position: Position
    """Where the next one's samples begin."""
    elapsed_s: float
    """Wall-clock time of the run so far, interruptions not counted."""
    tokens: int
    """Real tokens so far."""
    alarms: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run; see the module's docstring."""

    out: Path

    @property
    def run(self) -> Path:
        """Where everything but the newest checkpoint lies."""
        return self.out / "run"

    @property
    def metrics(self) -> Path:
        """JSON lines."""
        return self.run / "metrics.jsonl"

    @property
    def ledger(self) -> Path:
        """JSON lines."""
        return self.run / "ledger.jsonl"

    def step_folder(self, step: int) -> Path:
        """Folder of the checkpoint after a step."""
        return self.run / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, rising."""
        if not self.run.is_dir():
            return []
        found = (_STEP.fullmatch(path.name) for path in self.run.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.run / "settings.json").is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run that was started here came to its end."""
        return self.exists and bool(read_json(self.run / "settings.json", UsageError).get("finished"))


def check_target(out: Path, *, resume: bool, overwrite: bool) -> RunFolder:
    """Make sure that a run may be written to, or go on in, a folder.

    Raises:
        UsageError: the folder holds something else, or a run and neither flag was given, or a finished one.
    """
    folder = RunFolder(out)
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; a folder was expected.")
    if not out.is_dir() or not any(out.iterdir()):
        return folder
    if not folder.exists and not (out / "robal.json").is_file():
        raise UsageError(f"--out {out} is a folder of other things; give a new or empty one.")
    if overwrite:
        return folder
    if not folder.exists:
        raise UsageError(f"--out {out} holds a checkpoint; give another folder, or --overwrite to replace it.")
    if folder.is_finished:
        raise UsageError(f"--out {out} holds a finished run; give another folder, or --overwrite to replace it.")
    if not resume:
        raise UsageError(
            f"--out {out} holds an unfinished run; pass --resume to go on with it, or --overwrite to start anew."
        )
    return folder


def begin(folder: RunFolder, settings: Settings, about: Mapping[str, Any]) -> None:
    """Start a run: remove what an earlier one left and write down what this one is."""
    if folder.out.is_dir():
        shutil.rmtree(folder.out)
    folder.run.mkdir(parents=True)
    write_json(folder.run / "settings.json", {"finished": False, "settings": settings.as_record(), **about})


def compare(folder: RunFolder, settings: Settings) -> None:
    """Refuse to go on with a run that is another one.

    Raises:
        UsageError: the store or a setting differs from what the run was started with.
    """
    path = folder.run / "settings.json"
    theirs = read_json(path, UsageError)["settings"]
    ours = json.loads(json.dumps(settings.as_record()))  # tuples become lists, as in the file
    if theirs["store"] != ours["store"]:
        raise UsageError(
            f"the store has changed since the run in {folder.out} was started (fingerprint {theirs['store'][:12]} "
            f"then, {ours['store'][:12]} now), so the samples are not the same; restore it, or start anew elsewhere."
        )
    if names := differences(ours, theirs):
        raise UsageError(
            f"--resume goes on with the run in {folder.out}, and it was started with other settings: "
            f"{listing_of(names)}. Give the same ones, or another --out."
        )


def save(
    folder: RunFolder,
    *,
    model: Model,
    optimizer: Optimizer,
    state: State,
    store: Store,
    world: World,
    max_length: int,
    record: Mapping[str, Any],
    keep: int,
) -> None:
    """Write a checkpoint after a step and make it the newest one. All ranks call this; rank 0 writes.

    Raises:
        Failure: the disk is full; earlier checkpoints are untouched.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    moments = {
        names[parameter]: {key: whole(value) if isinstance(value, Tensor) else value for key, value in entries.items()}
        for parameter, entries in optimizer.state.items()
    }
    weights = {name: whole(parameter) for name, parameter in model.named_parameters()}
    world.raise_together(
        lambda: _write(folder, _plain(model, weights), moments, state, store, max_length, record, keep)
    )


def _plain(model: Model, weights: Mapping[str, Tensor]) -> Model:
    """The model with whole weights, for writing."""
    with torch.device("meta"):
        plain = build_model(model.config, sentence_task=isinstance(model, PretrainingModel))
    plain.load_state_dict(dict(weights), assign=True)
    return plain


def _write(
    folder: RunFolder,
    model: Model,
    moments: Mapping[str, Mapping[str, Any]],
    state: State,
    store: Store,
    max_length: int,
    record: Mapping[str, Any],
    keep: int,
) -> None:
    target = folder.step_folder(state.step)
    try:
        with replace_folder(target) as fresh:
            save_checkpoint(
                fresh / "model", model, store.tokenizer, max_length=max_length, record={**record, "step": state.step}
            )
            torch.save(moments, fresh / "optimizer.pt")
            write_json(fresh / "state.json", asdict(state))
        publish(folder, target)
    except (OSError, RuntimeError) as error:
        # torch reports a failed write as a RuntimeError without a number
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or _is_full(folder.run, model):
            raise Failure(_disk_full(folder, state.step)) from None
        raise
    for step in folder.steps()[:-keep]:
        shutil.rmtree(folder.step_folder(step))


def _is_full(folder: Path, model: Model) -> bool:
    needed = 3 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return shutil.disk_usage(folder).free < needed


def _disk_full(folder: RunFolder, step: int) -> str:
    kept = f"the checkpoint of step {folder.steps()[-1]} is whole" if folder.steps() else "there is no earlier one"
    return (
        f"no space is left for the checkpoint of step {step} in {folder.out}; {kept}. "
        "Free some space and go on with --resume."
    )


def check_space(folder: RunFolder, parameters: int) -> None:
    """Refuse to start what could not be saved: weights and two moments, twice during a swap.

    Raises:
        UsageError: there is too little space.
    """
    needed = 6 * 4 * parameters
    free = shutil.disk_usage(folder.run).free
    if free < needed:
        raise UsageError(
            f"the checkpoints of this run need {needed / 1e9:.1f} GB and {folder.out} has {free / 1e9:.1f} GB free; "
            "free some space or give another --out."
        )


def publish(folder: RunFolder, step_folder: Path) -> None:
    """Make a checkpoint's model files the newest ones in the run's folder."""
    files = sorted((step_folder / "model").iterdir(), key=lambda path: path.name == "robal.json")  # that one last
    for path in files:
        link = folder.run / f".{path.name}"
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, link)
        os.replace(link, folder.out / path.name)


def restore(folder: RunFolder, model: Model, optimizer: Optimizer) -> State:
    """Fill a model and its optimizer, placed on their ranks, from the newest checkpoint; cut the logs back to it.

    The logs are for rank 0 to cut: ``cut_logs``.

    Raises:
        Failure: the checkpoint is damaged.
    """
    target = folder.step_folder(folder.steps()[-1])
    load = load_pretraining if isinstance(model, PretrainingModel) else load_masked_lm
    plain = load(open_checkpoint(target / "model")).model
    parameters = dict(model.named_parameters())
    try:
        moments = torch.load(target / "optimizer.pt", map_location="cpu", weights_only=True)
        raw = read_json(target / "state.json", UsageError)
        with torch.no_grad():
            for name, value in plain.named_parameters():
                parameters[name].copy_(like(value.detach(), parameters[name]))
        for name, entries in moments.items():
            optimizer.state[parameters[name]] = {
                key: _placed(value, parameters[name]) for key, value in entries.items()
            }
        return State(**(raw | {"position": Position(**raw["position"])}))
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise Failure(
            f"{target} is damaged ({str(error).splitlines()[0]}); remove it to go on from the checkpoint before."
        ) from None


def _placed(value: Any, parameter: Tensor) -> Any:
    """A moment lies as its parameter does; a count of steps is as it was."""
    return like(value, parameter) if isinstance(value, Tensor) and value.shape == parameter.shape else value


def cut_logs(folder: RunFolder, step: int) -> None:
    """Remove the lines of steps after a checkpoint, which will be taken again, and leavings of an interrupted save."""
    for name in LOGS:
        path = folder.run / name
        if path.is_file():
            kept = [line for line in path.read_text(encoding="utf-8").splitlines(True) if _step_of(line) <= step]
            write_atomic(path, "".join(kept))
    for path in folder.run.iterdir():
        if path.name.startswith(".step-"):
            shutil.rmtree(path, ignore_errors=True)


def _step_of(line: str) -> float:
    """The step that a line is about; infinity for a line that was cut off in the middle."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):
        return float("inf")


def finish(folder: RunFolder) -> None:
    """Mark a run as finished and remove what it would go on from."""
    path = folder.run / "settings.json"
    write_json(path, read_json(path, UsageError) | {"finished": True})
    for step in folder.steps():
        shutil.rmtree(folder.step_folder(step))
