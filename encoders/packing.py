"""Several texts in one row without padding: where each lies, and how attention keeps them apart.

    padded    a a a a a a a        packed    c c b b b b a a a a a a a
              b b b b . . .                  |-| |-----| |-----------|
              c c . . . . .                  a row of real tokens only

Everything in an encoder but attention treats each token on its own, so it runs on the one long row as it is. Attention
runs on one rectangle (texts, tokens, hidden) for each run of neighbouring texts of equal length: a view of the row,
without a mask and without a copy. Sorting the texts by length makes the runs long. On a CPU this took between a quarter
and six tenths of the time of one block-diagonal mask over rows of 512, which computes the empty blocks too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Run(NamedTuple):
    """Neighbouring texts of equal length."""

    texts: int
    tokens: int
    """Of each text."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The lengths of the texts of a packed row, in order, each at least 1."""

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.lengths, "a packed row has at least one text"
        assert min(self.lengths) >= 1, "a packed text has at least one token"

    @property
    def runs(self) -> tuple[Run, ...]:
        """The row as runs of neighbours of equal length."""
        runs: list[Run] = []
        for length in self.lengths:
            if runs and runs[-1].tokens == length:
                runs[-1] = Run(runs[-1].texts + 1, length)
            else:
                runs.append(Run(1, length))
        return tuple(runs)

    @property
    def tokens(self) -> int:
        """Length of the row."""
        return sum(self.lengths)

    def starts(self, device: torch.device | None = None) -> Tensor:
        """(texts,) int64: where each text begins in the row."""
        lengths = torch.tensor((0, *self.lengths[:-1]), device=device)
        return lengths.cumsum(0)

    def positions(self, device: torch.device | None = None) -> Tensor:
        """(1, tokens) int64: each token's place in its own text, from 0."""
        lengths = torch.tensor(self.lengths, device=device)
        begin = self.starts(device).repeat_interleave(lengths)
        return (torch.arange(self.tokens, device=device) - begin).unsqueeze(0)


def split_runs(row: Tensor, packing: Packing) -> list[Tensor]:
    """(1, tokens, hidden) -> for each run (texts, tokens of each, hidden), as views."""
    runs = packing.runs
    pieces = row.split([run.texts * run.tokens for run in runs], dim=1)
    return [piece.view(run.texts, run.tokens, -1) for piece, run in zip(pieces, runs, strict=True)]


def join_runs(pieces: Sequence[Tensor]) -> Tensor:
    """The inverse of ``split_runs``: (1, tokens, hidden)."""
    return torch.cat([piece.reshape(1, -1, piece.shape[-1]) for piece in pieces], dim=1)
