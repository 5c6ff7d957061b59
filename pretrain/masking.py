"""Which tokens a model must guess: tokens, whole words or n-grams of words, 15 % of them, 80/10/10.

One algorithm for all units. A sample's tokens are grouped into items; a fixed number of items is chosen at random
without replacement; each token of a chosen item becomes the mask token (80 %), a random ordinary token (10 %) or stays
(10 %). The number is ``0.15 * items`` rounded up or down at random, as in fairseq, so the rate is exact on average; at
least one item is chosen if there is one. fairseq counts special tokens and may mask them; here they are never
candidates, never replacements, and not counted.

    token   an item is a token                                                    (Devlin et al. 2019)
    word    an item is a word with all its tokens                                 (BERT's whole-word masking)
    ngram   an item is a run of n words, p(n) ~ 1/n for n <= 3: 6/11, 3/11, 2/11  (Lan et al. 2020)

For n-grams the words of a sample are tiled with runs drawn from p(n), and tiles are chosen. The reference code instead
draws n at each place and skips what is covered or too long, which distorts p(n).

Every choice is a pure function of (seed, round, sample, place): the round is the epoch for dynamic masking and
``epoch mod copies`` for static masking, which therefore repeats each mask every ``copies`` epochs and stores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from contract.errors import UsageError
from pretrain.draws import Draws, Words
from pretrain.samples import Ints
from pretrain.vocabulary import Vocabulary

Style = Literal["dynamic", "static"]
Unit = Literal["token", "word", "ngram"]
STYLES: tuple[Style, ...] = get_args(Style)
UNITS: tuple[Unit, ...] = get_args(Unit)
_LOW = np.uint64(0xFFFFFFFF)
_32, _48, _16 = np.uint64(32), np.uint64(48), np.uint64(16)
MOST = 1 << 16
"""Samples in a batch, and tokens in a sample, must be fewer: their numbers share a 64-bit sort key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Masking:
    """How samples are masked."""

    style: Style = "dynamic"
    copies: int = 10
    """Static masking: number of different masks of each sample (RoBERTa's reimplementation of BERT: 10)."""
    unit: Unit = "token"
    rate: float = 0.15
    """Share of items that are chosen."""
    mask_share: float = 0.8
    """Share of chosen tokens that become the mask token."""
    random_share: float = 0.1
    """Share of chosen tokens that become a random ordinary token; the rest stays."""
    max_ngram: int = 3

    def __post_init__(self) -> None:
        if self.style not in STYLES or self.unit not in UNITS:
            raise UsageError(f"masking {self.style!r} by {self.unit!r}: expected {STYLES} by {UNITS}.")
        if not 0 < self.rate < 1:
            raise UsageError(f"the masking rate {self.rate} is not between 0 and 1.")
        if self.copies < 1 or self.max_ngram < 1:
            raise UsageError(f"copies={self.copies} and max_ngram={self.max_ngram} must be at least 1.")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise UsageError(f"mask_share={self.mask_share} and random_share={self.random_share} are no shares of one.")

    def round_of(self, epoch: int) -> int:
        """The number that stands for the epoch in every random choice."""
        return epoch if self.style == "dynamic" else epoch % self.copies


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """What was masked in a packed batch."""

    positions: Ints
    """(masked,) rising"""
    targets: Ints
    """(masked,) original ids"""
    maskable: npt.NDArray[np.bool_]
    """(batch,) whether a sample had anything to mask"""


class Masker:
    """Masks packed batches.

    Raises:
        DataError: words are asked for and the kind of tokenizer is not known.
    """

    def __init__(self, vocabulary: Vocabulary, masking: Masking, seed: int) -> None:
        self._vocabulary = vocabulary
        self._masking = masking
        self._seed = seed
        self._ordinary = vocabulary.ordinary_ids
        if masking.unit != "token":
            vocabulary.word_starts(self._ordinary[:1])
        weights = 1 / np.arange(1, masking.max_ngram + 1)
        shares = np.cumsum(weights / weights.sum())[:-1]
        self._ngram_borders = (shares * 2**32).astype(np.uint64)

    def __call__(self, ids: Ints, lengths: Ints, samples: Ints, round_: int) -> Masked:
        """Mask a batch in place.

        Args:
            ids: (tokens,) the samples one after another, special tokens included; changed in place.
            lengths: (batch,) tokens of each sample.
            samples: (batch,) number of each sample.
            round_: see ``Masking.round_of``.
        """
        assert len(samples) < MOST, f"{len(samples)} samples in one batch; load them in parts"
        assert lengths.max(initial=0) < MOST, "samples are shorter than 65,536 tokens"
        rounding, item_words, token_words = self._words(lengths, samples, round_)
        batch = len(samples)
        owner = np.repeat(np.arange(batch), lengths)
        places = np.flatnonzero(~self._vocabulary.special[ids])  # candidates
        begins = self._items(ids, places, owner, item_words, lengths)  # (candidates,) whether an item begins
        item_owner = owner[places][begins]
        counts = np.bincount(item_owner, minlength=batch)
        share = self._masking.rate * counts + (rounding >> np.uint64(11)) * 2.0**-53
        wanted = np.minimum(np.maximum(share.astype(np.int64), 1), counts)
        chosen = _choose(counts, wanted, item_owner, item_words, np.cumsum(lengths) - lengths)
        positions = places[chosen[np.cumsum(begins) - 1]]
        targets = ids[positions]
        ids[positions] = self._replacements(targets, token_words[positions])
        return Masked(positions=positions, targets=targets, maskable=counts > 0)

    def _words(self, lengths: Ints, samples: Ints, round_: int) -> tuple[Words, Words, Words]:
        """Random words: one for each sample, and two for each token; of each sample, from its own counter."""
        draws = Draws(self._seed, "masks")
        total = int(lengths.sum())
        rounding = np.empty(len(samples), dtype=np.uint64)
        items, tokens = np.empty(total, dtype=np.uint64), np.empty(total, dtype=np.uint64)
        begin = 0
        for index, (sample, length) in enumerate(zip(samples.tolist(), lengths.tolist(), strict=True)):
            words = draws.words(sample, round_, 1 + 2 * length)
            rounding[index] = words[0]
            items[begin : begin + length] = words[1 : 1 + length]
            tokens[begin : begin + length] = words[1 + length :]
            begin += length
        return rounding, items, tokens

    def _items(self, ids: Ints, places: Ints, owner: Ints, words: Words, lengths: Ints) -> npt.NDArray[np.bool_]:
        """(candidates,) whether an item begins at each candidate token."""
        if self._masking.unit == "token" or not len(places):
            return np.ones(len(places), dtype=bool)
        starts = self._vocabulary.word_starts(ids)[places]
        # A new sample, or a special token between two candidates, always ends a word.
        starts |= np.diff(places, prepend=-2) > 1
        if self._masking.unit == "word":
            return starts
        word_places = np.flatnonzero(starts)
        owners = owner[places[word_places]]
        counts = np.bincount(owners, minlength=len(lengths))
        first = np.cumsum(counts) - counts
        number = np.arange(len(owners)) - first[owners]  # of a word, or a tile, in its sample
        base = np.cumsum(lengths) - lengths
        size = 1 + np.searchsorted(self._ngram_borders, words[base[owners] + number] & _LOW, side="right")
        ends = np.cumsum(size)
        begins = ends - size
        begins -= begins[np.minimum(first, len(size) - 1)][owners]
        inside = begins < counts[owners]
        tiles = np.zeros(len(places), dtype=bool)
        tiles[word_places[first[owners[inside]] + begins[inside]]] = True
        return tiles

    def _replacements(self, targets: Ints, words: Words) -> Ints:
        decision, number = words >> _32, words & _LOW
        masked = np.uint64(self._masking.mask_share * 2**32)
        random = np.uint64((self._masking.mask_share + self._masking.random_share) * 2**32)
        others = self._ordinary[((number * np.uint64(len(self._ordinary))) >> _32).astype(np.int64)]
        return np.where(decision < masked, self._vocabulary.mask_id, np.where(decision < random, others, targets))


def _choose(counts: Ints, wanted: Ints, item_owner: Ints, words: Words, base: Ints) -> npt.NDArray[np.bool_]:
    """(items,) whether each item is among the ``wanted`` ones of its sample with the smallest random words."""
    first = np.cumsum(counts) - counts
    number = np.arange(len(item_owner)) - first[item_owner]
    random = words[base[item_owner] + number] >> _32
    # Sample, random word and number in one key: sorting plain integers is several times faster than argsort.
    keys = np.sort(item_owner.astype(np.uint64) << _48 | random << _16 | number.astype(np.uint64))
    picked = keys[number < wanted[item_owner]]  # sorted, the n-th key of a sample stands where its n-th item stood
    chosen = np.zeros(len(item_owner), dtype=bool)
    chosen[first[(picked >> _48).astype(np.int64)] + (picked & np.uint64(0xFFFF)).astype(np.int64)] = True
    return chosen
