"""Where results may go, checked before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

from contract.errors import UsageError
from contract.storage import recover_folder


def state_path(out: Path) -> Path:
    """Where the state of an unfinished run lies that writes its checkpoint to ``out``."""
    out = out.absolute()
    return out.with_name(f"{out.name}.resume")


def check_checkpoint(folder: Path, *, overwrite: bool, resume: bool = False) -> None:
    """Make sure that a checkpoint may be and can be written to a folder.

    Raises:
        UsageError: it is a file, holds a checkpoint and ``overwrite`` is off, holds anything else, or is not writable;
            or a run that writes there was interrupted and neither ``resume`` nor ``overwrite`` is on.
    """
    recover_folder(folder)
    interrupted = state_path(folder)
    if interrupted.exists():
        if not (resume or overwrite):
            raise UsageError(
                f"{interrupted} is an interrupted run; pass --resume to go on, or --overwrite to start anew."
            )
        overwrite = True
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; a folder was expected.")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / "robal.json").is_file():
            raise UsageError(f"--out {folder} is a folder of other things; give a new or empty one.")
        if not overwrite:
            raise UsageError(f"--out {folder} holds a checkpoint; give another folder, or --overwrite to replace it.")
    _require_writable(folder, "--out")


def check_predictions(out: Path, data: Path, *, overwrite: bool) -> None:
    """Make sure that predictions may be and can be written to a file. Raises UsageError with the reason."""
    if out.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"--out {out} has the extension {out.suffix!r}; .csv or .jsonl was expected.")
    if out.exists() and data.exists() and out.samefile(data):
        raise UsageError(f"--out {out} is the file of the texts; give another name.")
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; a file was expected.")
    if out.exists() and not overwrite:
        raise UsageError(f"--out {out} exists; give another name, or --overwrite to replace it.")
    _require_writable(out, "--out")


def check_log(path: Path) -> None:
    """Make sure that a metric log can be written; an older one is replaced. Raises UsageError with the reason."""
    if path.is_dir():
        raise UsageError(f"--log {path} is a folder; a file was expected.")
    _require_writable(path, "--log")


def _require_writable(path: Path, flag: str) -> None:
    """The nearest folder that exists must take new entries."""
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"{flag} {path} cannot be made: {parent} is not a folder that you may write to.")
