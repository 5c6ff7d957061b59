"""MinHash signatures of documents, and the search for documents that an earlier one almost equals.

A document is a set of five-token shingles; datasketch estimates the Jaccard similarity of two sets from signatures of
126 numbers (Broder 1997). Signatures are compared only where one of 21 bands of 6 numbers agrees, which finds a pair
of similarity 0.8 with probability 0.998 and keeps memory bounded: bands are searched one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from datasketch import MinHash

BANDS, ROWS = 21, 6
WIDTH = BANDS * ROWS
SHINGLE = 5
SIMILARITY = 0.8
"""Estimated Jaccard similarity from which a document counts as a near duplicate."""
CHUNK = 1 << 13
"""Shingles that are hashed at once."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=1)
def _empty() -> MinHash:
    from datasketch import MinHash

    return MinHash(num_perm=WIDTH, seed=1, hashfunc=int, scheme="affine32")


def signature(ids: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint32]:
    """(WIDTH,) MinHash values of a document's token ids."""
    minhash = _empty().copy()
    for begin in range(0, max(1, len(ids) - SHINGLE + 1), CHUNK):
        minhash.update_batch(_shingles(ids[begin : begin + CHUNK + SHINGLE - 1]).tolist())
    return np.asarray(minhash.hashvalues, dtype="<u4")


def _shingles(ids: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint32]:
    """32-bit hashes of all runs of SHINGLE ids; of the whole if it is shorter. Wraps around on purpose."""
    wide = ids.astype(np.uint64)
    count = max(1, len(wide) - SHINGLE + 1)
    mixed = np.zeros(count, dtype=np.uint64)
    for step in range(min(SHINGLE, len(wide))):
        mixed = (mixed ^ wide[step : step + count]) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return np.unique((mixed >> np.uint64(32)).astype(np.uint32))


def mark_near_duplicates(signatures: npt.NDArray[np.uint32], alive: npt.NDArray[np.bool_], rows_in_memory: int) -> int:
    """Clear ``alive`` for documents that an earlier living one almost equals; returns how many.

    Args:
        signatures: (documents, WIDTH), usually a memory map.
        alive: (documents,) whether a document is still in the corpus; changed in place.
        rows_in_memory: documents that are sorted at once; a band with more is searched in several passes.
    """
    passes = max(1, -(-len(alive) // rows_in_memory))
    dropped: set[int] = set()
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        for turn in range(passes):
            numbers, keys = _keys(signatures[:, columns], alive, passes, turn)
            order = np.lexsort((numbers, keys))
            numbers, keys = numbers[order], keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=~keys[:1]) != 0)
            leader = np.repeat(numbers[first], np.diff(first, append=len(keys)))
            follows = leader != numbers
            dropped.update(_similar(signatures, leader[follows], numbers[follows]))
    alive[list(dropped)] = False
    return len(dropped)


def _keys(
    band: npt.NDArray[np.uint32], alive: npt.NDArray[np.bool_], passes: int, turn: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Numbers and band hashes of the living documents whose hash is due in this turn."""
    numbers, keys = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    for begin in range(0, len(band), CHUNK):
        key = np.zeros(len(band[begin : begin + CHUNK]), dtype=np.uint64)
        for column in band[begin : begin + CHUNK].T.astype(np.uint64):
            key = (key ^ column) * _MULTIPLIER
            key ^= key >> np.uint64(29)
        chosen = np.flatnonzero(alive[begin : begin + CHUNK] & (key % np.uint64(passes) == turn))
        numbers.append(begin + chosen)
        keys.append(key[chosen])
    return np.concatenate(numbers), np.concatenate(keys)


def _similar(
    signatures: npt.NDArray[np.uint32], earlier: npt.NDArray[np.int64], later: npt.NDArray[np.int64]
) -> Iterator[int]:
    """The later documents of the pairs whose estimated similarity is high enough."""
    for begin in range(0, len(later), CHUNK):
        pair = slice(begin, begin + CHUNK)
        estimate = (signatures[earlier[pair]] == signatures[later[pair]]).mean(axis=1)
        yield from later[pair][estimate >= SIMILARITY].tolist()
