"""A data check as text for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labelled.check import Finding, Report

MOST_CLASSES = 20
"""Longer tables of classes show the largest and the smallest; ``--json`` has all."""


def print_report(report: Report) -> None:
    """Files, classes side by side, then what is wrong, what spoils first."""
    screen = Console(highlight=False)
    described = report.as_json()
    for file in described["files"]:
        screen.print(escape(_head(file)), soft_wrap=True)
        for measure in ("tokens", "characters", "words"):
            if file.get(measure):
                screen.print(escape(_lengths(measure, file[measure])), soft_wrap=True)
    if any("labels" in file for file in described["files"]):
        screen.print(_classes(described["files"]))
    for pair in described["between"]:
        if pair["drift"] is not None:
            screen.print(escape(_drift(pair)), soft_wrap=True)
    for finding in report.findings:
        mark = "[red]spoils[/red]" if finding.spoils else "note  "
        screen.print(f"{mark}  {escape(_finding(finding))}", soft_wrap=True)
    spoiling = sum(finding.spoils for finding in report.findings)
    if spoiling:
        screen.print(f"{spoiling} of {len(report.findings)} findings would spoil a training.")
    else:
        screen.print(f"Nothing that would spoil a training; {len(report.findings)} findings to know of.")


def _head(file: dict[str, Any]) -> str:
    values = file.get("values")
    spread = f", values {values['least']:g} to {values['most']:g}, median {values['median']:g}" if values else ""
    unusable = f", {file['unusable_rows']:,} unusable" if file["unusable_rows"] else ""
    return f"{file['file']}: {file['rows']:,} rows{unusable}, columns {', '.join(file['columns'])}{spread}"


def _lengths(measure: str, found: dict[str, Any]) -> str:
    line = (
        f"  {measure}: {found['least']:,} to {found['most']:,}, mean {found['mean']:,.1f}, median {found['median']:,}, "
        f"95 % up to {found['p95']:,}, 99 % up to {found['p99']:,}"
    )
    if "max_length" in found:
        line += f"; at {found['max_length']} tokens {found['cut_rows']:,} rows lose {found['cut_tokens']:,} tokens"
    if found.get("unknown_share"):
        line += f"; {found['unknown_share']:.2%} unknown"
    return line


def _classes(files: list[dict[str, Any]]) -> Table:
    table = Table("class")
    for file in files:
        table.add_column(escape(file["file"]), justify="right", overflow="fold")
        table.add_column("%", justify="right")
    names = list(dict.fromkeys(name for file in files for name in file.get("labels", {})))
    if len(names) > MOST_CLASSES:
        by_rows = sorted(names, key=lambda name: -files[0].get("labels", {}).get(name, 0))
        half = MOST_CLASSES // 2
        shown: list[str | None] = [*by_rows[:half], None, *by_rows[-half:]]
    else:
        shown = [*names]
    for name in shown:
        if name is None:
            table.add_row(f"... {len(names) - MOST_CLASSES} more")
            continue
        cells = []
        for file in files:
            count = file.get("labels", {}).get(name, 0)
            cells += [f"{count:,}", f"{100 * count / max(1, file['rows']):.1f}"]
        table.add_row(escape(name), *cells)
    return table


def _drift(pair: dict[str, Any]) -> str:
    first, second = pair["files"]
    drift = pair["drift"]
    rough = ", rough: few rows in some class" if drift["rough"] else ""
    return (
        f"classes of {second} beside {first}: chi-square {drift['chi_square']:.2f} with {drift['freedom']} degrees of "
        f"freedom, p {drift['p']:.3g}{rough}, Cramér's V {drift['cramers_v']:.3f}"
    )


def _finding(finding: Finding) -> str:
    where = ""
    if finding.places:
        more = ", ..." if finding.count > len(finding.places) > 1 else ""
        where = f" ({finding.place} {', '.join(map(str, finding.places))}{more})"
    return f"{finding.kind} in {finding.files[-1]}: {finding.count:,}{where}: {finding.message}"
