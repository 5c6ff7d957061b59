"""How far a load test is: a bar on a terminal, a quiet line per step elsewhere. On stderr; stdout is for results."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows ``seconds`` under load as a bar; starts of servers come on top."""

    def __init__(self, seconds: float) -> None:
        self.console = Console(stderr=True)
        self.seconds = seconds
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
        self.task = self.bar.add_task("", total=seconds)

    def __enter__(self) -> Progress:
        self.console.print(f"{self.seconds / 60:.1f} minutes under load, plus the starts of the servers.")
        self.bar.start()
        return self

    def update(self, doing: str, done_s: float) -> None:
        """Say what is being done and how many seconds of load are over."""
        self.bar.update(self.task, description=doing, completed=done_s)
        if not self.console.is_terminal and doing != self.said:
            self.console.print(f"{done_s / self.seconds:4.0%} {doing}", markup=False, highlight=False)
        self.said = doing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
