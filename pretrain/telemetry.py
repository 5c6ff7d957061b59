"""What a run tells while it runs: a bar, JSON lines, TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from contract.errors import MissingExtra
from encoders.training import MetricLog
from pretrain.progress import say

QUIET_S = 30.0
"""Seconds between two lines where there is no terminal."""
RATE_STEPS = 20
"""Steps over which the shown rate is averaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFigures:
    """One update, over all ranks. Losses are means in nats."""

    step: int
    """From 1."""
    epoch: int
    """From 0."""
    learning_rate: float
    """The one that this update used."""
    mlm_loss: float
    pair_loss: float | None
    """None without a sentence task, or if no sample of the step had a pair."""
    pair_accuracy: float | None
    gradient_norm: float
    """Before clipping."""
    samples: int
    tokens: int
    """Real ones."""
    masked: int
    masked_rate: float
    """Share of the real tokens that were predicted; special tokens count as real and are never masked."""
    padding_share: float
    """Share of the computed positions that were padding."""
    seconds: float
    """Of the whole step, loading included."""
    load_seconds: float
    """Spent on making this rank's batches, whether or not anyone waited for it."""
    wait_seconds: float
    """Spent on waiting for them."""
    tokens_per_second: float
    flops_per_second: float
    """By the counting rules of ``flops.py``."""
    peak_share: float
    """Of what plain matrix products reach on this hardware, all ranks together."""
    sent_bytes: int
    """Gradient bytes that each rank handed to the others in this update, counted."""
    at_word_frequencies: bool
    """Whether the loss is stuck at the unigram entropy; see ``Alarms``."""


@cache
def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.5) -> float:
    """Operations per second of the best of several large matrix products: what a model can hope for.

    Measured once in a process.
    """
    size = 4096 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, until = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < until:
        begun = time.perf_counter()
        product = left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - begun))
        del product
    return best


class Telemetry:
    """Use as a context manager.

    Args:
        metrics: file of JSON lines; None writes none, and shows nothing: what ranks other than 0 use.
        tensorboard: folder for TensorBoard's files; see ``require_tensorboard``.
        total: updates or seconds of the whole run.
        in_seconds: whether ``total`` counts seconds.
        entropy: unigram entropy of the data, shown beside the loss.
    """

    def __init__(
        self, metrics: Path | None, *, tensorboard: Path | None, total: float, in_seconds: bool, entropy: float
    ) -> None:
        self._log = MetricLog(metrics) if metrics is not None else None
        self._board = _tensorboard(tensorboard) if tensorboard is not None and metrics is not None else None
        self._total = total
        self._in_seconds = in_seconds
        self._entropy = entropy
        self._screen = Console(stderr=True, highlight=False)
        self._silent = metrics is None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._screen,
            transient=True,
            disable=self._silent or not self._screen.is_terminal,
        )
        self._task = self._bar.add_task("pretraining", total=total, figures="")
        self._recent: deque[StepFigures] = deque(maxlen=RATE_STEPS)
        self._said = time.monotonic()

    def __enter__(self) -> Telemetry:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(None, None, None)
        if self._log is not None:
            self._log.close()
        if self._board is not None:
            self._board.close()

    def stepped(self, figures: StepFigures, elapsed_s: float) -> None:
        """Tell about an update.

        Args:
            figures: of the update.
            elapsed_s: seconds of the run so far.
        """
        if self._log is not None:
            self._log.write(kind="step", elapsed_s=round(elapsed_s, 3), **_rounded(asdict(figures)))
        if self._board is not None:
            for name, value in asdict(figures).items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(f"train/{name}", value, figures.step)
            self._board.add_scalar("train/unigram_entropy", self._entropy, figures.step)
        self._recent.append(figures)
        self._show(elapsed_s if self._in_seconds else figures.step)

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Tell about a look at the held-out split."""
        if self._log is not None:
            self._log.write(kind="heldout", step=step, **_rounded(figures))
        if self._board is not None:
            for name, value in figures.items():
                self._board.add_scalar(f"heldout/{name}", value, step)
        self.note(f"step {step}, held out: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))

    def note(self, text: str) -> None:
        """One line for the waiting person."""
        if not self._silent:
            self._screen.print(escape(text), soft_wrap=True)

    def _show(self, done: float) -> None:
        last = self._recent[-1]
        seconds = sum(figures.seconds for figures in self._recent)
        rate = sum(figures.tokens for figures in self._recent) / max(seconds, 1e-9)
        loss = sum(figures.mlm_loss for figures in self._recent) / len(self._recent)
        text = f"loss {loss:.3f} (word frequencies {self._entropy:.2f})"
        if last.pair_accuracy is not None:
            known = [figures.pair_accuracy for figures in self._recent if figures.pair_accuracy is not None]
            text += f", pairs {sum(known) / len(known):.0%}"
        text += f", {rate:,.0f} tokens/s, {last.peak_share:.0%} of peak"
        self._bar.update(self._task, completed=done, description=f"step {last.step}", figures=text)
        now = time.monotonic()
        if not self._screen.is_terminal and now - self._said >= QUIET_S:
            self._said = now
            self.note(f"step {last.step} ({done / max(self._total, 1e-9):.0%}): {text}")


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Six digits are enough for a log; times and rates would otherwise fill it with noise."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in figures.items()}


def require_tensorboard() -> None:
    """Raises MissingExtra if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("--tensorboard needs the package tensorboard; run: pip install tensorboard")


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    say(f"tensorboard --logdir {folder}")
    return SummaryWriter(str(folder))
