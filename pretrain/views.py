"""Training samples from a store: an input format, an objective and a masking, computed when a batch is loaded.

``View.load(ids, epoch)`` is a pure function. It does not matter which process asks, in which order or how often, so
loaders need no state and any number of workers and ranks see the same samples.

Sentence objectives (``pair_labels``):

- Next sentence prediction (NSP, Devlin et al. 2019): half of the pairs get a second segment of another document.
  Samples are matched at random in twos, and both or none exchange their second segments. So an epoch still holds each
  token once, a negative is as long as a positive, and nothing is truncated.
- Sentence order prediction (SOP, Lan et al. 2020): half of the pairs swap their segments, types follow position.
  In the reference code (google-research/albert, create_pretraining_data.py) a chunk of one sentence gets a second
  segment from a *random document* and the label "swapped": topic alone then tells the answer for those samples, which
  is the signal of NSP that SOP was made to avoid (google-research/albert#234). Here both segments always come from one
  document and are adjacent; a sample of one sentence has no pair label and trains the masked tokens alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from contract.errors import DataError, UsageError
from pretrain.draws import Permutation, hashed, key_of
from pretrain.layout import FORMATS, PAIR_FORMATS, Format, Limits, lay_out
from pretrain.masking import Masker, Masking
from pretrain.samples import NO_LABEL, Ints, Samples
from pretrain.store import TRAIN, Store

Objective = Literal["mlm", "nsp", "sop"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSettings:
    """Everything that decides the samples of a store."""

    format: Format = "full-sentences"
    objective: Objective = "mlm"
    """``mlm`` alone, or with ``nsp`` or ``sop``; these need a pair format."""
    masking: Masking = field(default_factory=Masking)
    max_length: int = 512
    """Most tokens of a sample, special tokens included."""
    short_share: float = 0.0
    """Segment-pair: share of samples with a random shorter limit. BERT and ALBERT: 0.1; RoBERTa: 0."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"the input format {self.format!r} is none of {', '.join(FORMATS)}.")
        if self.objective not in OBJECTIVES:
            raise UsageError(f"the objective {self.objective!r} is none of {', '.join(OBJECTIVES)}.")
        if self.objective != "mlm" and self.format not in PAIR_FORMATS:
            raise UsageError(
                f"{self.objective} needs two segments and the format {self.format} has one; "
                f"use one of {', '.join(PAIR_FORMATS)}."
            )
        if not 0 <= self.short_share <= 1:
            raise UsageError(f"short_share={self.short_share} is not a share.")


@dataclass(frozen=True, slots=True)
class _Segments:
    """Where the segments of a batch lie in the stream, in the order in which a sample shows them."""

    first: Ints
    first_length: Ints
    second: Ints
    second_length: Ints
    """0 for a sample of one segment."""
    labels: Ints


class View:
    """The samples of one split of a store. Safe to share between threads.

    Raises:
        UsageError: ``max_length`` leaves no room for text.
        DataError: the split has no documents, no pairs for the objective, or words cannot be found.
    """

    def __init__(self, store: Store, settings: ViewSettings, split: str = TRAIN) -> None:
        self.store = store
        self.settings = settings
        self.split = split
        template = store.vocabulary.template
        self._pair_format = settings.format in PAIR_FORMATS
        self._single_specials = len(template.before) + len(template.after)
        self._pair_specials = len(template.before) + len(template.between) + len(template.end)
        room = settings.max_length - (self._pair_specials if self._pair_format else self._single_specials)
        if room < 2:
            raise UsageError(f"max_length={settings.max_length} leaves no room for text beside the special tokens.")
        limits = Limits(room=room, short_share=settings.short_share, seed=settings.seed)
        self._layout = lay_out(store, split, settings.format, limits)
        if not len(self._layout.starts):
            raise DataError(f"the split {split!r} of {store.folder} has no documents; prepare it with --heldout.")
        self._mask = Masker(store.vocabulary, settings.masking, settings.seed)
        self._negative_share = self._share_of_negatives() if settings.objective == "nsp" else 0.0
        if settings.objective == "sop" and self.pairs == 0:
            raise DataError(f"no document of {store.folder} has two sentences, so there is no order to predict.")
        self._matching = lru_cache(maxsize=2)(self._match)

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return len(self._layout.starts)

    @property
    def pairs(self) -> int:
        """Samples with two segments; they have the numbers below this."""
        return self._layout.pairs

    @property
    def tokens(self) -> int:
        """Tokens of the stream in an epoch, special tokens not counted."""
        return int(self._layout.document_starts[-1] - self._layout.document_starts[0])

    @property
    def negative_share(self) -> float:
        """NSP: expected share of pairs with a second segment of another document; 0.5 unless one document dominates."""
        return self._negative_share * self._share_between_documents() if self.settings.objective == "nsp" else 0.0

    def order(self, epoch: int) -> Permutation:
        """The order of an epoch: a permutation of the sample numbers."""
        return Permutation(self.samples, key_of(self.settings.seed, "order", epoch))

    def lengths(self, ids: npt.NDArray[Any], epoch: int) -> Ints:
        """(batch,) tokens of samples in an epoch, special tokens included."""
        segments = self._segments(np.asarray(ids, dtype=np.int64), epoch)
        return self._total(segments) + self._separators(segments)

    def load(self, ids: npt.NDArray[Any], epoch: int) -> Samples:
        """Samples of an epoch, masked.

        Args:
            ids: (batch,) sample numbers below ``samples``.
            epoch: counts from 0.
        """
        ids = np.asarray(ids, dtype=np.int64)
        segments = self._segments(ids, epoch)
        lengths = self._total(segments) + self._separators(segments)
        input_ids, token_type_ids = self._assemble(segments, lengths)
        masked = self._mask(input_ids, lengths, ids, self.settings.masking.round_of(epoch))
        return Samples(
            ids=ids,
            lengths=lengths,
            input_ids=input_ids,
            token_type_ids=token_type_ids,
            masked_positions=masked.positions,
            targets=masked.targets,
            pair_labels=segments.labels,
            maskable=masked.maskable,
        )

    def _segments(self, ids: Ints, epoch: int) -> _Segments:
        layout = self._layout
        first, first_length = layout.starts[ids], layout.firsts[ids].astype(np.int64)
        second, second_length = first + first_length, layout.lengths[ids] - first_length
        labels = np.full(len(ids), NO_LABEL, dtype=np.int64)
        round_ = self.settings.masking.round_of(epoch)
        pair = ids < self.pairs
        if self.settings.objective == "sop":
            swapped = pair & (hashed(key_of(self.settings.seed, "sop", round_), ids) >> np.uint64(63) == 1)
            labels[pair] = swapped[pair]
            first, second = np.where(swapped, second, first), np.where(swapped, first, second)
            first_length, second_length = (
                np.where(swapped, second_length, first_length),
                np.where(swapped, first_length, second_length),
            )
        elif self.settings.objective == "nsp":
            partner = self._partners(ids[pair], round_)
            labels[pair] = partner != ids[pair]
            second[pair] = layout.starts[partner] + layout.firsts[partner]
            second_length[pair] = layout.lengths[partner] - layout.firsts[partner]
        return _Segments(first, first_length, second, second_length, labels)

    def _match(self, round_: int) -> Permutation:
        return Permutation(self.pairs, key_of(self.settings.seed, "nsp", round_))

    def _partners(self, ids: Ints, round_: int) -> Ints:
        """(pairs,) the sample whose second segment each sample shows: itself, or its partner in this round."""
        matching = self._matching(round_)
        places = matching.inverse(ids)
        partners = matching(np.minimum(places ^ 1, self.pairs - 1))
        documents = self._layout.documents
        coins = (hashed(key_of(self.settings.seed, "exchange", round_), places >> 1) >> np.uint64(11)) * 2.0**-53
        exchange = (documents[partners] != documents[ids]) & (coins < self._negative_share)
        return np.where(exchange, partners, ids)

    def _share_between_documents(self) -> float:
        """Probability that two pairs of the split come from different documents."""
        counts = np.unique(self._layout.documents[: self.pairs], return_counts=True)[1]
        within = float((counts * (counts - 1)).sum()) / max(1, self.pairs * (self.pairs - 1))
        return 1 - within

    def _share_of_negatives(self) -> float:
        """Probability of an exchange between documents that makes half of all pairs negative, as far as possible."""
        between = self._share_between_documents() if self.pairs > 1 else 0.0
        if between == 0:
            raise DataError(
                f"the split {self.split!r} of {self.store.folder} does not have two documents with two sentences each, "
                "so next sentence prediction has no negatives; use sop or mlm."
            )
        return min(1.0, 0.5 / between)

    def _total(self, segments: _Segments) -> Ints:
        """(batch,) tokens of the segments and the special tokens around them."""
        specials = np.where(segments.second_length > 0, self._pair_specials, self._single_specials)
        return segments.first_length + segments.second_length + specials

    def _borders(self, segments: _Segments) -> tuple[Ints, Ints]:
        """First and last document border inside each sample (full-sentences), as a range of ``document_starts``."""
        starts = self._layout.document_starts
        ends = segments.first + segments.first_length
        return np.searchsorted(starts, segments.first, side="right"), np.searchsorted(starts, ends, side="left")

    def _separators(self, segments: _Segments) -> Ints:
        """(batch,) separators between documents."""
        if self.settings.format != "full-sentences":
            return np.zeros(len(segments.first), dtype=np.int64)
        begin, end = self._borders(segments)
        return end - begin

    def _assemble(self, segments: _Segments, lengths: Ints) -> tuple[Ints, Ints]:
        """Ids and types (tokens,) of the samples with their special tokens.

        Special tokens are placed for all samples at once. Text is copied in slices: a slice costs about a microsecond,
        which is no more than a gather of the same tokens and leaves the memory map to read ahead.
        """
        template, tokens = self.store.vocabulary.template, self.store.tokens
        ids = np.empty(int(lengths.sum()), dtype=np.int64)
        types = np.zeros(len(ids), dtype=np.int64)
        ends = np.cumsum(lengths)
        pair = segments.second_length > 0
        suffix = np.where(pair, len(template.end), len(template.after))
        first_at = ends - lengths + len(template.before)
        second_at = ends - suffix - segments.second_length
        _place(ids, ends - lengths, template.before)
        _place(ids, ends[~pair] - len(template.after), template.after)
        if pair.any():
            _place(ids, ends[pair] - len(template.end), template.end)
            _place(ids, second_at[pair] - len(template.between), template.between)
            if template.second_type:
                rest = np.where(pair, ends - second_at, 0)
                turns = np.column_stack((lengths - rest, rest)).ravel()
                types = np.repeat(np.tile([0, template.second_type], len(lengths)), turns)
        inside: list[list[int]] = [[]] * len(lengths)
        if self.settings.format == "full-sentences":
            starts = self._layout.document_starts
            inside = [starts[a:b].tolist() for a, b in zip(*self._borders(segments), strict=True)]
        firsts = zip(first_at.tolist(), segments.first.tolist(), segments.first_length.tolist(), inside, strict=True)
        for at, begin, length, borders in firsts:
            end = begin + length
            for border in borders:
                ids[at : at + border - begin] = tokens[begin:border]
                at += border - begin + 1
                ids[at - 1] = template.after[0]
                begin = border
            ids[at : at + end - begin] = tokens[begin:end]
        seconds = (second_at[pair], segments.second[pair], segments.second_length[pair])
        for at, begin, length in zip(*(column.tolist() for column in seconds), strict=True):
            ids[at : at + length] = tokens[begin : begin + length]
        return ids, types


def _place(ids: Ints, places: Ints, values: tuple[int, ...]) -> None:
    """Write the values from each place on."""
    for offset, value in enumerate(values):
        ids[places + offset] = value
