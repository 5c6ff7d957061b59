"""What a waiting person sees: bars on a terminal, one line per event elsewhere; all on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import TaskProgressColumn as Percent

if TYPE_CHECKING:  # for the annotations only: prediction with a bundle shows progress without importing torch
    from finetune.events import Evaluation, Step

SMOOTHING = 0.95
"""Weight of the past in the shown loss."""
RATE_WINDOW_S = 10.0
"""Span over which the shown rates are averaged."""


def console() -> Console:
    """Where progress goes. Made at each call, because tests and callers may have replaced ``sys.stderr``."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One line for the waiting person."""
    console().print(escape(text), soft_wrap=True)


@contextmanager
def counting(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar for work that is counted in rows; yields the function to call with the rows just done."""
    screen = console()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        task = bar.add_task(escape(description), total=total)
        yield lambda rows: bar.advance(task, rows)


class TrainingBar:
    """The bar of a training run. Use as a context manager; is a ``loop.Watch``.

    Args:
        metric: the figure that decides, shown first.
        epochs: of the whole run.
    """

    def __init__(self, metric: str, epochs: int) -> None:
        self._metric = metric
        self._epochs = epochs
        self._screen = console()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            Percent(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._screen,
            disable=not self._screen.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None
        self._loss: float | None = None
        self._window: list[tuple[float, int, int]] = []

    def __enter__(self) -> TrainingBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(None, None, None)

    def stepped(self, step: Step) -> None:
        """See ``loop.Watch``."""
        past = step.loss if self._loss is None else self._loss
        self._loss = SMOOTHING * past + (1 - SMOOTHING) * step.loss
        now = time.monotonic()
        self._window.append((now, step.rows, step.tokens))
        while now - self._window[0][0] > RATE_WINDOW_S and len(self._window) > 2:
            self._window.pop(0)
        if self._task is None:
            self._task = self._bar.add_task("", total=step.of, figures="")
        rows, tokens = self._rates()
        self._bar.update(
            self._task,
            completed=step.number,
            description=f"epoch {step.epoch}/{self._epochs}",
            figures=f"loss {self._loss:.4f}  {rows:,.0f} rows/s  {tokens:,.0f} tokens/s",
        )

    def _rates(self) -> tuple[float, float]:
        """Rows and tokens per second over the window; the first entry only marks its start."""
        span = self._window[-1][0] - self._window[0][0]
        counted = self._window[1:]
        if not counted or span <= 0:
            return 0.0, 0.0
        return sum(rows for _, rows, _ in counted) / span, sum(tokens for _, _, tokens in counted) / span

    def evaluated(self, evaluation: Evaluation) -> None:
        """See ``loop.Watch``."""
        figures = evaluation.figures
        rows, tokens = self._rates()
        shown = [name for name in (self._metric, "accuracy", "macro_f1", "loss") if name in figures]
        parts = [f"epoch {evaluation.epoch}/{self._epochs}", f"step {evaluation.step}"]
        parts += [] if self._loss is None else [f"train loss {self._loss:.4f}"]
        parts += [f"dev {name} {figures[name]:.4f}" for name in dict.fromkeys(shown)]
        parts += [f"{rows:,.0f} rows/s", f"{tokens:,.0f} tokens/s"]
        parts += ["kept"] if evaluation.kept else ["not better"]
        self._bar.console.print(escape("  ".join(parts)), soft_wrap=True)
