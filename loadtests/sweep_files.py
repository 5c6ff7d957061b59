"""The folder of a regime map: visits as they end, then the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.errors import UsageError, listing
from contract.storage import write_atomic, write_json
from loadtests.sweep import VISITS
from loadtests.sweep_report import render_sweep_markdown, render_sweep_page

JSON, MARKDOWN, PAGE = "sweep.json", "sweep.md", "sweep.html"


def check_target(out: Path, *, overwrite: bool) -> None:
    """Make ready a folder: an earlier sweep goes on in it, or with ``overwrite`` begins anew.

    Raises:
        UsageError: it is a file, or holds something that no sweep wrote.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"--out {out} is a file; a folder was expected.")
    ours = {JSON, MARKDOWN, PAGE, VISITS}
    if foreign := {path.name for path in out.iterdir()} - ours:
        raise UsageError(f"--out {out} holds {listing(foreign, 3)}, which no sweep has; choose another folder.")
    if overwrite:
        for name in ours:
            (out / name).unlink(missing_ok=True)


def write_sweep(out: Path, report: dict[str, Any]) -> None:
    """Write the report beside the visits."""
    write_json(out / JSON, report)
    write_atomic(out / MARKDOWN, render_sweep_markdown(report))
    write_atomic(out / PAGE, render_sweep_page(report))
