"""Passes on what happens in a run and writes it down as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from contract.storage import write_atomic
from encoders.training import MetricLog
from finetune.events import Evaluation, Step, Watch
from finetune.record import look_of


class Logged:
    """A ``Watch`` in front of another one. Use as a context manager.

    Args:
        watch: is told everything too.
        path: of the log; None writes none. What is there is replaced.
        after_step: lines up to this step stay, because the run goes on from it.
    """

    def __init__(self, watch: Watch, path: Path | None, after_step: int = 0) -> None:
        self._watch = watch
        self._log: MetricLog | None = None
        if path is not None:
            lines = path.read_text("utf-8").splitlines(keepends=True) if after_step and path.exists() else []
            write_atomic(path, "".join(line for line in lines if json.loads(line)["step"] <= after_step))
            self._log = MetricLog(path)

    def __enter__(self) -> Logged:
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    def stepped(self, step: Step) -> None:
        """See ``loop.Watch``."""
        self._watch.stepped(step)
        if self._log is not None:
            self._log.write(
                step=step.number,
                epoch=step.epoch,
                loss=step.loss,
                learning_rate=step.learning_rate,
                gradient_norm=step.gradient_norm,
                rows=step.rows,
                tokens=step.tokens,
                seconds=round(step.seconds, 6),
            )

    def evaluated(self, evaluation: Evaluation) -> None:
        """See ``loop.Watch``."""
        self._watch.evaluated(evaluation)
        if self._log is not None:
            self._log.write(**look_of(evaluation))
