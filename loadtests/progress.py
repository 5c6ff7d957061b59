"""How far a load test is: a bar on a terminal, a quiet line per step elsewhere. On stderr; stdout is for results."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows how much of a ``total`` is done as a bar, after a sentence that says what is to come."""

    def __init__(self, total: float, announcement: str) -> None:
        self.console = Console(stderr=True)
        self.total = total
        self.announcement = announcement
        self.said = ""
        self.bar = Bar(
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self.console.print(self.announcement, highlight=False)
        self.bar.start()
        return self

    def update(self, doing: str, done: float) -> None:
        """Say what is being done and how much of the total is over."""
        self.bar.update(self.task, description=doing, completed=done)
        if not self.console.is_terminal and doing != self.said:
            self.console.print(f"{done / self.total:4.0%} {doing}", markup=False, highlight=False)
        self.said = doing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
