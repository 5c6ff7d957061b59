"""Random numbers that are pure functions of what they are for, never of who asked first.

Two generators, both counter-based, so there is no state to save and nothing depends on workers, ranks or batches:

- ``Draws``: numpy's Philox4x64-10 (Salmon et al. 2011). key = (seed, purpose), counter = (0, sample, round, 0); the
  first counter word is Philox's own and counts blocks. numpy promises that the stream never changes.
- ``hashed``: the finaliser of SplitMix64 (Steele et al. 2014) over arrays, for decisions of one word per item, and as
  the round function of ``Permutation``.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
ROUNDS = 8


def key_of(*parts: int | str) -> np.uint64:
    """A 64-bit key for named parts, such as (seed, "order", epoch)."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little"))


def hashed(key: np.uint64, values: npt.NDArray[Any]) -> Words:
    """Uniform 64-bit words, one for each integer value, under a key."""
    return _mix(_mix(values.astype(np.uint64) ^ key) + key)


def _mix(x: Words) -> Words:
    x = x + _GOLDEN
    x ^= x >> _S30
    x *= _M1
    x ^= x >> _S27
    x *= _M2
    x ^= x >> _S31
    return x


class Draws:
    """Words for samples, from Philox keyed by (seed, purpose). One object serves one thread."""

    def __init__(self, seed: int, purpose: str) -> None:
        # The constructor costs ten times as much as a change of state, so one generator serves all samples.
        self._philox = np.random.Philox(key=0)
        self._state: Any = dict(self._philox.state)
        key = np.array([np.uint64(seed % 2**64), key_of(purpose)], dtype=np.uint64)
        self._counter = np.zeros(4, dtype=np.uint64)
        self._state["state"] = {"counter": self._counter, "key": key}
        self._state["buffer_pos"] = 4  # nothing left over from an earlier sample

    def words(self, sample: int, round_: int, count: int) -> Words:
        """(count,) uniform words of a sample in a round (an epoch, or the number of a static copy)."""
        self._counter[:] = (0, sample, round_, 0)
        self._philox.state = self._state
        return self._philox.random_raw(count)


class Permutation:
    """A seeded permutation of range(size) that is computed, not stored, in both directions.

    A Feistel network over the next power of two, walked until it falls inside the range (Black and Rogaway 2002). The
    two halves of a number may differ by a bit; they change in turn.
    """

    def __init__(self, size: int, key: np.uint64) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._shift = np.uint64(bits // 2)
        self._low, self._high = np.uint64((1 << bits // 2) - 1), np.uint64((1 << bits - bits // 2) - 1)
        self._keys = [np.uint64(word) for word in hashed(key, np.arange(ROUNDS))]

    def __call__(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The items at these positions of the permuted order."""
        return self._walk(positions, list(enumerate(self._keys)))

    def inverse(self, items: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The positions of these items."""
        return self._walk(items, list(enumerate(self._keys))[::-1])

    def _walk(self, values: npt.NDArray[Any], rounds: list[tuple[int, np.uint64]]) -> npt.NDArray[np.int64]:
        result = self._once(np.asarray(values).astype(np.uint64), rounds)
        outside = np.flatnonzero(result >= self.size)
        while len(outside):
            result[outside] = self._once(result[outside], rounds)
            outside = outside[result[outside] >= self.size]
        return result.astype(np.int64)

    def _once(self, values: Words, rounds: list[tuple[int, np.uint64]]) -> Words:
        high, low = values >> self._shift, values & self._low
        for number, key in rounds:
            if number % 2:
                low ^= _mix(high + key) & self._low
            else:
                high ^= _mix(low + key) & self._high
        return high << self._shift | low
