"""Where the samples of each input format lie in the token stream of a store.

    segment-pair     two runs of whole sentences of one document, each at most half of the room
    sentence-pair    two consecutive sentences
    full-sentences   whole sentences as long as they fit, across documents, with a separator between documents
    doc-sentences    the same within one document; samples at the end of a document are short

(Liu et al. 2019, section 4.2.) In every format the samples tile the stream: each token belongs to exactly one sample.
A sentence that is longer than its limit is cut into pieces first; a piece then counts as a sentence.

A layout is computed when a view is opened, many documents at a time, and takes 12 to 20 bytes for each sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pretrain.draws import hashed, key_of
from pretrain.store import Offsets, Store

Format = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]
FORMATS: tuple[Format, ...] = get_args(Format)
PAIR_FORMATS: tuple[Format, ...] = ("segment-pair", "sentence-pair")
LANE_TOKENS = 1 << 21
"""Full-sentences packs runs of documents of about this many tokens independently, side by side."""
GROUP_LANES = 16
"""Lanes whose sentences are in memory at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The samples of a view. Samples with two segments come first, in stream order, then those with one."""

    starts: npt.NDArray[np.int64]
    """(samples,) first token."""
    lengths: npt.NDArray[np.int32]
    """(samples,) tokens of the stream, without special tokens."""
    firsts: npt.NDArray[np.int32]
    """(samples,) tokens of the first segment; equal to the length where there is no second one."""
    documents: npt.NDArray[np.int64]
    """(samples,) document of each sample, counted in the split; empty for full-sentences, which needs none."""
    pairs: int
    """Number of samples with two segments."""
    document_starts: Offsets
    """(documents + 1,) first token of each document of the split, and the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much fits into a sample."""

    room: int
    """Tokens of the stream in one sample; in pair formats, of both segments together."""
    short_share: float = 0.0
    """Segment-pair: share of samples that get a random shorter limit (BERT's and ALBERT's short_seq_prob)."""
    seed: int = 0


def lay_out(store: Store, split: str, format_: Format, limits: Limits) -> Layout:
    """Cut one split of a store into samples."""
    first, last = store.split_documents(split)
    document_starts = np.asarray(store.sentences[store.documents[first : last + 1]])
    parts: list[tuple[npt.NDArray[Any], ...]] = [(np.empty(0, np.int64),) * 4]
    for begin, end in _groups(document_starts):
        bounds = document_starts[begin : end + 1]
        sentences = store.sentences[store.documents[first + begin] : store.documents[first + end] + 1]
        match format_:
            case "full-sentences":
                units = _units(sentences, limits.room)
                starts, lengths = _across_documents(units, bounds, limits.room)
                parts.append((starts, lengths, lengths, starts[:0]))
            case "doc-sentences":
                units = _units(sentences, limits.room)
                starts, lengths, owners = _within_documents(units, bounds, limits.room)
                parts.append((starts, lengths, lengths, begin + owners))
            case "segment-pair":
                starts, lengths, firsts, owners = _segment_pairs(_units(sentences, limits.room // 2), bounds, limits)
                parts.append((starts, lengths, firsts, begin + owners))
            case "sentence-pair":
                starts, lengths, firsts, owners = _sentence_pairs(_units(sentences, limits.room // 2), bounds)
                parts.append((starts, lengths, firsts, begin + owners))
    starts, lengths, firsts, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    single = firsts == lengths
    if format_ in PAIR_FORMATS and single.any():
        order = np.argsort(single, kind="stable")
        starts, lengths, firsts, owners = starts[order], lengths[order], firsts[order], owners[order]
    return Layout(
        starts=starts,
        lengths=lengths.astype(np.int32),
        firsts=firsts.astype(np.int32),
        documents=owners,
        pairs=int(np.count_nonzero(~single)) if format_ in PAIR_FORMATS else 0,
        document_starts=document_starts,
    )


def _lanes(document_starts: Offsets) -> Offsets:
    """Documents at which lanes begin, and the end: a lane has at least ``LANE_TOKENS`` tokens, the last one aside."""
    marks = np.arange(document_starts[0], document_starts[-1], LANE_TOKENS)
    return np.unique(np.append(np.searchsorted(document_starts, marks), len(document_starts) - 1))


def _groups(document_starts: Offsets) -> Iterator[tuple[int, int]]:
    if len(document_starts) < 2:
        return
    lanes = _lanes(document_starts)
    yield from itertools.pairwise([*lanes[:-1:GROUP_LANES].tolist(), int(lanes[-1])])


def _units(sentences: Offsets, limit: int) -> Offsets:
    """(units,) ends of the sentences, where sentences over ``limit`` tokens count as several."""
    starts, ends = sentences[:-1], sentences[1:]
    pieces = -(-(ends - starts) // limit)
    if pieces.max(initial=1) == 1:
        return np.asarray(ends)
    owner = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.asarray(np.minimum(starts[owner] + (number + 1) * limit, ends[owner]))


def _last_within(units: Offsets, limit: Offsets) -> Offsets:
    """The last unit end that is not beyond each limit; the first one if all are."""
    return np.asarray(units[np.maximum(np.searchsorted(units, limit, side="right") - 1, 0)])


def _within_documents(units: Offsets, bounds: Offsets, room: int) -> tuple[Offsets, Offsets, Offsets]:
    """Starts, lengths and documents of doc-sentences; the n-th sample of every document is found at once."""
    owners, starts, ends = np.arange(len(bounds) - 1), bounds[:-1], bounds[1:]
    found = []
    while len(starts):
        stops = np.minimum(_last_within(units, starts + room), ends)
        found.append((starts, stops - starts, owners))
        goes_on = stops < ends
        starts, ends, owners = stops[goes_on], ends[goes_on], owners[goes_on]
    starts, lengths, owners = _in_stream_order(found)
    return starts, lengths, owners


def _across_documents(units: Offsets, bounds: Offsets, room: int) -> tuple[Offsets, Offsets]:
    """Starts and lengths of full-sentences; the n-th sample of every lane is found at once.

    A separator stands between two documents. Counting one for each document before a token, a sample from s to e
    takes (e + documents before e) - (s + documents before s) positions.
    """
    with_separators = units + np.searchsorted(bounds[1:], units, side="left")
    lanes = bounds[_lanes(bounds)]
    starts, ends = lanes[:-1], lanes[1:]
    found = []
    while len(starts):
        before = np.searchsorted(bounds[1:], starts, side="right")
        index = np.searchsorted(with_separators, starts + before + room, side="right") - 1
        stops = np.minimum(units[index], ends)
        found.append((starts, stops - starts))
        goes_on = stops < ends
        starts, ends = stops[goes_on], ends[goes_on]
    starts, lengths = _in_stream_order(found)
    return starts, lengths


def _segment_pairs(units: Offsets, bounds: Offsets, limits: Limits) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Starts, lengths, first segments and documents of segment-pair.

    Each segment has at most half of the room, so any first segment fits beside any second one: a negative of next
    sentence prediction needs no truncation, which would give it away. The rest of a document that is shorter than a
    full sample is shared between two segments.
    """
    key = key_of(limits.seed, "short")
    owners, starts, ends = np.arange(len(bounds) - 1), bounds[:-1], bounds[1:]
    found = []
    while len(starts):
        half = np.full(len(starts), limits.room // 2)
        if limits.short_share > 0:
            words = hashed(key, starts)
            short = (words >> np.uint64(32)) < np.uint64(limits.short_share * 2**32)
            target = 2 + ((words & np.uint64(0xFFFFFFFF)) * np.uint64(limits.room - 1) >> np.uint64(32)).astype(
                np.int64
            )
            half[short] = target[short] // 2
        one = units[np.searchsorted(units, starts, side="right")]  # at least one sentence
        wanted = np.minimum(half, (ends - starts) // 2)
        middles = np.maximum(_last_within(units, starts + wanted), one)
        pair = middles < ends
        stops = middles.copy()
        one = units[np.searchsorted(units, middles[pair], side="right")]
        stops[pair] = np.minimum(np.maximum(_last_within(units, middles[pair] + half[pair]), one), ends[pair])
        found.append((starts, stops - starts, middles - starts, owners))
        goes_on = stops < ends
        starts, ends, owners = stops[goes_on], ends[goes_on], owners[goes_on]
    starts, lengths, firsts, owners = _in_stream_order(found)
    return starts, lengths, firsts, owners


def _sentence_pairs(units: Offsets, bounds: Offsets) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """Starts, lengths, first segments and documents of sentence-pair: sentences 0 and 1, 2 and 3, ... of a document."""
    owner = np.searchsorted(bounds[1:], units, side="left")
    number = np.arange(len(units)) - np.searchsorted(owner, owner, side="left")
    begins = np.flatnonzero(number % 2 == 0)
    unit_starts = np.concatenate((bounds[:1], units[:-1]))
    follows = np.append(owner[1:], -1)[begins] == owner[begins]
    stops = units[np.where(follows, np.minimum(begins + 1, len(units) - 1), begins)]
    starts = unit_starts[begins]
    return starts, stops - starts, units[begins] - starts, owner[begins]


def _in_stream_order(found: Sequence[tuple[Offsets, ...]]) -> list[Offsets]:
    """The columns of all rounds, sorted by the first one."""
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.argsort(columns[0])
    return [column[order] for column in columns]
