"""The order of training: which samples make each step, how they are shared, and where to go on.

The state is one ``Position``: an epoch and the number of its samples that are done. Steps are the same for any number
of ranks and workers; ranks and micro-batches are shares of a step. The last step of an epoch may be smaller; nothing is
dropped or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from contract.errors import UsageError
from pretrain.samples import Ints
from pretrain.views import View

BLOCK = 1 << 13
"""Samples whose place in the order is computed at once."""


@dataclass(frozen=True, kw_only=True, order=True)
class Position:
    """How far training is. Resuming from here gives the steps that an uninterrupted run would have taken."""

    epoch: int = 0
    consumed: int = 0
    """Samples of the epoch that were used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step's samples."""

    epoch: int
    ids: Ints
    """(batch,) sample numbers, in order"""
    lengths: Ints
    """(batch,) tokens, special tokens included"""
    after: Position
    """The position once the step is done."""

    def shares(self, parts: int) -> list[Ints]:
        """The ids in ``parts`` consecutive runs with about equal numbers of tokens; some may be empty."""
        middles = np.cumsum(self.lengths) - self.lengths / 2
        part = (middles * parts / max(1, int(self.lengths.sum()))).astype(np.int64)
        return np.split(self.ids, np.searchsorted(part, np.arange(1, parts)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The endless sequence of steps over a view.

    Exactly one of the two sizes is given.
    """

    view: View
    batch_samples: int | None = None
    """A step is so many samples."""
    batch_tokens: int | None = None
    """A step is as many samples as fit into so many tokens, at least one: short samples make large batches, so that
    formats with short samples (sentence-pair, doc-sentences) see as many tokens in each step as the others."""

    def __post_init__(self) -> None:
        if (self.batch_samples is None) == (self.batch_tokens is None):
            raise UsageError("a batch is either a number of samples or a number of tokens.")
        if (self.batch_samples or self.batch_tokens or 0) < 1:
            raise UsageError("a batch has at least one sample.")

    def start_at(self, position: Position) -> Iterator[Step]:
        """Steps from a position on, without end."""
        while True:
            yield from self.epoch(position)
            position = Position(epoch=position.epoch + 1)

    def epoch(self, position: Position) -> Iterator[Step]:
        """The rest of the position's epoch.

        Raises:
            UsageError: the position is beyond the epoch's samples; it belongs to another view.
        """
        view, epoch, done = self.view, position.epoch, position.consumed
        if not 0 <= done <= view.samples:
            raise UsageError(f"{done} samples of an epoch of {view.samples} cannot be done; is this the same store?")
        order = view.order(epoch)
        ids, lengths, reached = np.empty(0, np.int64), np.empty(0, np.int64), done
        while done < view.samples:
            size = self._size(lengths)
            if size is None and reached < view.samples:  # the block may end inside a step
                more = order(np.arange(reached, min(reached + BLOCK, view.samples)))
                ids, lengths = np.concatenate((ids, more)), np.concatenate((lengths, view.lengths(more, epoch)))
                reached += len(more)
                continue
            size = len(ids) if size is None else size
            done += size
            after = Position(epoch=epoch, consumed=done) if done < view.samples else Position(epoch=epoch + 1)
            yield Step(epoch=epoch, ids=ids[:size], lengths=lengths[:size], after=after)
            ids, lengths = ids[size:], lengths[size:]

    def _size(self, lengths: Ints) -> int | None:
        """Samples of the next step, or None if more must be known to tell."""
        if self.batch_samples is not None:
            return self.batch_samples if self.batch_samples <= len(lengths) else None
        assert self.batch_tokens is not None
        fits = int(np.searchsorted(np.cumsum(lengths[: self.batch_tokens]), self.batch_tokens, side="right"))
        return max(fits, 1) if fits < len(lengths) else None

    def count(self, epoch: int = 0) -> int:
        """Steps of an epoch."""
        if self.batch_samples is not None:
            return -(-self.view.samples // self.batch_samples)
        return sum(1 for _ in self.epoch(Position(epoch=epoch)))
