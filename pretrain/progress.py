"""How far a command is: a bar on a terminal, a quiet line now and then elsewhere. On stderr; stdout is for results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

QUIET_S = 15.0
"""Seconds between two lines where there is no terminal."""


def say(text: str) -> None:
    """One line for the waiting person."""
    Console(stderr=True, highlight=False).print(escape(text), soft_wrap=True)


@contextmanager
def counting(description: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    """A bar for work that is counted in units such as MB; yields the function to call with the units just done."""
    screen = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    began = said = time.monotonic()
    done = 0.0

    def advance(units: float) -> None:
        nonlocal done, said
        done += units
        now = time.monotonic()
        per_second = done / max(now - began, 1e-9)
        rate = f"{per_second:,.1f} {unit}/s"
        bar.update(task, completed=done, rate=rate)
        if not screen.is_terminal and now - said >= QUIET_S:
            said = now
            left = (total - done) / per_second if done else 0.0
            screen.print(f"{escape(description)} {done / max(total, 1e-9):.0%}, {rate}, {left:,.0f} s left")

    with bar:
        task = bar.add_task(escape(description), total=total, rate="")
        yield advance


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """A bar without an end for one long call that reports nothing."""
    screen = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        bar.add_task(escape(description), total=None)
        yield
