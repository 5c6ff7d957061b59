"""The file beside a checkpoint from which an interrupted run goes on, bit for bit.

It holds what the weights of the next step depend on: parameters, optimiser moments, schedule, averaged weights, the
number of steps (which is the position in the data, because the order of rows is a function of seed and epoch) and the
states of the random generators (dropout). It is replaced in one step and removed when the run is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from contract.errors import UsageError
from contract.storage import open_atomic
from finetune.events import Evaluation, Progress

State = dict[str, Any]


def generator_states() -> State:
    """Of PyTorch, on all devices; nothing else is drawn from while training."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_generator_states(states: State) -> None:
    """Undo what was drawn since ``generator_states``."""
    torch.set_rng_state(states["cpu"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])


def write_state(path: Path, state: State) -> None:
    """Replace the file in one step."""
    with open_atomic(path) as handle:
        torch.save(state, handle)


def read_state(path: Path, identity: Mapping[str, object]) -> State:
    """The state of a run that had the same identity.

    Raises:
        UsageError: the run had other options or data, or the file is broken.
    """
    try:
        state: State = torch.load(path, map_location="cpu", weights_only=True)
        recorded = state["identity"]
    except Exception as error:  # torch raises many kinds for a broken file
        raise UsageError(f"{path} cannot be read ({error}); remove it and start without --resume.") from None
    differing = [name for name in recorded.keys() | identity.keys() if recorded.get(name) != identity.get(name)]
    if differing:
        name = min(differing)
        raise UsageError(
            f"{path} is from a run with another {name} ({recorded.get(name)!r}; now {identity.get(name)!r}); "
            "give --resume with the same options and files, or start anew with --overwrite."
        )
    return state


def progress_state(progress: Progress) -> State:
    """As plain values."""
    return asdict(progress)


def restore_progress(progress: Progress, state: State) -> None:
    """Fill ``progress`` from ``progress_state``."""
    for name, value in state.items():
        setattr(progress, name, value)
    progress.evaluations = [Evaluation(**values) for values in state["evaluations"]]
    progress.best = Evaluation(**state["best"]) if state["best"] else None
