"""The report's folder: whole or absent."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

from contract.errors import UsageError, listing
from contract.storage import replace_folder, write_atomic, write_json
from loadtests.compare import Visit
from loadtests.markdown import render_markdown
from loadtests.page import render_page
from loadtests.records import Phase, Request

JSON, MARKDOWN, PAGE, REQUESTS = "report.json", "report.md", "report.html", "requests.csv.gz"
OURS = frozenset({JSON, MARKDOWN, PAGE, REQUESTS})
PHASES: tuple[Phase, ...] = ("warm-up", "steady", "cool-down")


def check_target(out: Path, *, overwrite: bool, ours: Set[str] = OURS) -> None:
    """Refuse, before minutes of work, a folder that must not be replaced.

    Raises:
        UsageError: it is a file, holds something that is not a report, or a report that may not be overwritten.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"--out {out} is a file; a folder was expected.")
    foreign = {path.name for path in out.iterdir()} - ours
    if foreign:
        raise UsageError(f"--out {out} holds {listing(foreign, 3)}, which no report has; choose another folder.")
    if any(out.iterdir()) and not overwrite:
        raise UsageError(f"--out {out} already holds a report; add --overwrite to replace it.")


def write_report(out: Path, report: dict[str, Any], visits: Sequence[Visit]) -> None:
    """Write all four files of the report in one step."""
    page = render_page(report)
    with replace_folder(out) as folder:
        write_json(folder / JSON, report)
        write_atomic(folder / MARKDOWN, render_markdown(report))
        write_atomic(folder / PAGE, page)
        write_atomic(folder / REQUESTS, gzip.compress(_requests(report, visits).encode(), mtime=0))


def _requests(report: dict[str, Any], visits: Sequence[Visit]) -> str:
    """Every single request of every phase, so that anything can be computed again."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    plain = [field.name for field in fields(Request) if field.name != "stages_ms"]
    stages = ("tokenize", "queue", "engine", "total")
    writer.writerow(["visit", "service", "load", "phase", *plain, *(f"{stage}_ms" for stage in stages)])
    for number, visit in enumerate(visits):
        name = report["subjects"][visit.subject]["name"]
        for title, phase, request in _each(visit):
            values = [getattr(request, field) for field in plain]
            writer.writerow([number, name, title, phase, *values, *(request.stages_ms.get(stage) for stage in stages)])
    return buffer.getvalue()


def _each(visit: Visit) -> Iterator[tuple[str, Phase, Request]]:
    for stretch in visit.stretches:
        for phase in PHASES:
            for request in stretch.run.phase(phase):
                yield stretch.run.load.title, phase, request
