"""Which rows form a batch. Pure functions of lengths and seeds; no tokens, no tensors.

Texts of like length share a batch, so that little of it is padding. Sorting the whole epoch would make the order of
difficulty the same in every epoch; shuffling first and sorting inside large chunks keeps it random
(the "mega-batches" of group_by_length in transformers).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CHUNK_BATCHES = 50
"""Batches per chunk inside which texts are sorted by length."""

Indices = npt.NDArray[np.int64]


def epoch_batches(lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int) -> list[Indices]:
    """Batches of one epoch: every row once, all batches full except one.

    Args:
        lengths: tokens of each row.
        batch_size: rows of a batch.
        seed: of the run.
        epoch: number of the epoch; another epoch has another order.

    Returns:
        Arrays (batch,) of row numbers, a function of the arguments alone.
    """
    generator = np.random.default_rng((seed, epoch))
    order = generator.permutation(len(lengths))
    sizes = np.asarray(lengths)
    chunk = batch_size * CHUNK_BATCHES
    batches = []
    for start in range(0, len(order), chunk):
        part = order[start : start + chunk]
        part = part[np.argsort(-sizes[part], kind="stable")]
        batches += [part[at : at + batch_size] for at in range(0, len(part), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]


def budget_batches(lengths: Sequence[int], max_tokens: int) -> list[Indices]:
    """Batches for inference: longest rows first, padded size of each at most ``max_tokens`` (or a single row).

    Longest first, so that running out of memory happens at once and a time estimate errs on the safe side.
    """
    batches: list[list[int]] = []
    for index in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return [np.array(batch) for batch in batches]


def parts(batch: Indices, count: int) -> list[Indices]:
    """A batch in at most ``count`` parts of nearly equal size, none empty; together they are the batch."""
    return np.array_split(batch, min(count, len(batch)))
