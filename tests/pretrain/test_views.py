"""Each input format against its definition, written out as a plain loop over sentences."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import DataError, UsageError
from pretrain import layout
from pretrain.layout import FORMATS, PAIR_FORMATS, Format
from pretrain.masking import Masking
from pretrain.samples import NO_LABEL
from pretrain.store import HELDOUT, Store
from pretrain.tokenizer import TokenizerKind
from pretrain.views import View, ViewSettings
from tests.pretrain.stores import CASES, prepared, shared, store_of

documents_st = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=9), min_size=1, max_size=12)
kinds_st = st.sampled_from(["bpe", "wordpiece"])


def view_of(store: Store, format_: Format, max_length: int = 24, **changes: object) -> View:
    return View(store, ViewSettings(format=format_, max_length=max_length, **changes))  # type: ignore[arg-type]


def contents(view: View, epoch: int = 0) -> list[list[int]]:
    """The original ids of every sample of an epoch."""
    samples = view.load(np.arange(view.samples), epoch)
    return [part.tolist() for part in np.split(samples.original_ids(), np.cumsum(samples.lengths)[:-1])]


def pieces(document: list[int], limit: int) -> list[int]:
    """Lengths of a document's sentences once those over the limit are cut."""
    return [min(limit, n - cut) for n in document for cut in range(0, n, limit)]


def expected_full_sentences(documents: list[list[int]], room: int) -> list[list[int]]:
    """Samples as lists of lengths of uninterrupted text; a separator stands between them."""
    samples: list[list[int]] = [[]]
    for document in documents:
        fresh = True
        for n in pieces(document, room):
            used = sum(samples[-1]) + len(samples[-1]) - 1
            if samples[-1] and used + (1 if fresh else 0) + n > room:
                samples.append([])
            if fresh or not samples[-1]:
                samples[-1].append(n)
            else:
                samples[-1][-1] += n
            fresh = False
    return samples


def expected_doc_sentences(documents: list[list[int]], room: int) -> list[int]:
    samples = []
    for document in documents:
        used = 0
        for n in pieces(document, room):
            if used + n > room:
                samples.append(used)
                used = 0
            used += n
        samples.append(used)
    return samples


@given(documents=documents_st, kind=kinds_st, max_length=st.integers(8, 40))
def test_full_sentences_fill_the_window_across_documents_with_separators(
    documents: list[list[int]], kind: TokenizerKind, max_length: int
) -> None:
    store = store_of(documents, kind)
    template = store.vocabulary.template
    view = view_of(store, "full-sentences", max_length)
    room = max_length - len(template.before) - len(template.after)
    stream = iter(store.tokens.tolist())
    expected = []
    for parts in expected_full_sentences(documents, room):
        ids = [*template.before]
        for number, length in enumerate(parts):
            ids += ([template.after[0]] if number else []) + [next(stream) for _ in range(length)]
        expected.append([*ids, *template.after])
    assert contents(view) == expected


@given(documents=documents_st, kind=kinds_st, max_length=st.integers(8, 40))
def test_doc_sentences_fill_the_window_and_stop_at_the_end_of_a_document(
    documents: list[list[int]], kind: TokenizerKind, max_length: int
) -> None:
    store = store_of(documents, kind)
    template = store.vocabulary.template
    view = view_of(store, "doc-sentences", max_length)
    stream = iter(store.tokens.tolist())
    expected = [
        [*template.before, *(next(stream) for _ in range(length)), *template.after]
        for length in expected_doc_sentences(documents, max_length - len(template.before) - len(template.after))
    ]
    assert contents(view) == expected


@given(documents=documents_st, kind=kinds_st, max_length=st.integers(9, 40))
def test_sentence_pairs_are_two_consecutive_sentences_of_a_document(
    documents: list[list[int]], kind: TokenizerKind, max_length: int
) -> None:
    store = store_of(documents, kind)
    template = store.vocabulary.template
    view = view_of(store, "sentence-pair", max_length)
    specials = len(template.before) + len(template.between) + len(template.end)
    stream = iter(store.tokens.tolist())
    pairs, singles = [], []
    for document in documents:
        parts = [[next(stream) for _ in range(n)] for n in pieces(document, (max_length - specials) // 2)]
        for first, second in zip(parts[0::2], [*parts[1::2], None], strict=False):
            if second is None:
                singles.append([*template.before, *first, *template.after])
            else:
                pairs.append([*template.before, *first, *template.between, *second, *template.end])
    assert contents(view) == pairs + singles
    assert view.pairs == len(pairs)


@given(documents=documents_st, max_length=st.integers(9, 40), short=st.sampled_from([0.0, 0.5]), seed=st.integers(0, 3))
def test_segment_pairs_are_two_adjacent_runs_of_sentences_of_a_document(
    documents: list[list[int]], max_length: int, short: float, seed: int
) -> None:
    store = store_of(documents)
    view = view_of(store, "segment-pair", max_length, short_share=short, seed=seed)
    half = (max_length - 4) // 2
    borders = {0, *np.cumsum([n for document in documents for n in pieces(document, half)]).tolist()}
    document_ends = np.cumsum([sum(document) for document in documents])
    where = view._layout
    for number in range(view.samples):
        start, length, first = (int(column[number]) for column in (where.starts, where.lengths, where.firsts))
        assert {start, start + first, start + length} <= borders, "segments are whole sentences"
        assert max(first, length - first) <= half
        assert np.searchsorted(document_ends, start, side="right") == np.searchsorted(document_ends, start + length)
        assert (number < view.pairs) == (first < length)


def test_segments_are_as_long_as_they_may_be() -> None:
    view = view_of(store_of([[5] * 40] * 3), "segment-pair", 44)
    assert view._layout.firsts.tolist() == [20] * 15
    assert view._layout.lengths.tolist() == [40] * 15


def test_the_rest_of_a_document_is_shared_between_two_segments() -> None:
    view = view_of(store_of([[5, 5, 5, 5]]), "segment-pair", 44)
    assert (view._layout.firsts.tolist(), view._layout.lengths.tolist()) == ([10], [20])


def test_short_samples_make_up_the_share_that_was_asked_for() -> None:
    store = store_of([[2] * 4000] * 5)
    share = 0.1
    lengths = view_of(store, "segment-pair", 104, short_share=share)._layout.lengths
    full = np.count_nonzero(lengths == 100)
    # Of the short ones a fiftieth happens to be full.
    assert abs(full / len(lengths) - (1 - share * 0.98)) < 5 * math.sqrt(share / len(lengths)) + 0.02


@given(
    documents=documents_st,
    kind=kinds_st,
    max_length=st.integers(9, 40),
    format_=st.sampled_from(FORMATS),
    objective=st.sampled_from(["mlm", "nsp", "sop"]),
    epoch=st.integers(0, 3),
)
def test_every_epoch_holds_each_token_once_and_no_sample_is_too_long(
    documents: list[list[int]], kind: TokenizerKind, max_length: int, format_: Format, objective: str, epoch: int
) -> None:
    store = store_of(documents, kind)
    try:
        view = view_of(store, format_, max_length, objective=objective)
    except (UsageError, DataError):
        assert objective != "mlm"
        return
    samples = view.load(np.arange(view.samples), epoch)
    assert samples.lengths.max() <= max_length
    assert np.array_equal(samples.lengths, view.lengths(np.arange(view.samples), epoch))
    original = samples.original_ids()
    ordinary = original[~store.vocabulary.special[original]]
    assert Counter(ordinary.tolist()) == Counter(store.tokens.tolist())
    assert view.tokens == len(store.tokens)
    assert samples.maskable.all()


@pytest.mark.parametrize("format_", FORMATS)
def test_many_lanes_and_groups_still_tile_the_stream(format_: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    store = store_of([rng.integers(1, 30, rng.integers(1, 12)).tolist() for _ in range(300)])
    monkeypatch.setattr(layout, "LANE_TOKENS", 100)
    monkeypatch.setattr(layout, "GROUP_LANES", 3)
    view = view_of(store, format_, 64)
    order = np.argsort(view._layout.starts)
    starts, lengths = view._layout.starts[order], view._layout.lengths[order]
    assert starts[0] == 0
    assert np.array_equal(starts[1:], (starts + lengths)[:-1])
    assert starts[-1] + lengths[-1] == len(store.tokens)
    assert view.load(np.arange(view.samples), 0).lengths.max() <= 64
    if format_ != "full-sentences":
        plain = view_of(store, format_, 64)
        assert np.array_equal(plain._layout.starts, view._layout.starts)


def many_documents(count: int = 400) -> Store:
    rng = np.random.default_rng(3)
    return store_of([rng.integers(2, 20, rng.integers(1, 9)).tolist() for _ in range(count)], "wordpiece")


def document_of(store: Store, tokens: np.ndarray) -> np.ndarray:
    return np.searchsorted(store.sentences[store.documents[1:]], tokens, side="right")


@pytest.mark.parametrize("format_", PAIR_FORMATS)
def test_half_of_the_next_sentences_come_from_another_document(format_: Format) -> None:
    store = many_documents()
    view = view_of(store, format_, 44, objective="nsp")
    ids = np.arange(view.pairs)
    negatives = 0
    for epoch in range(20):
        segments = view._segments(ids, epoch)
        other = document_of(store, segments.first) != document_of(store, segments.second)
        adjacent = segments.first + segments.first_length == segments.second
        assert np.array_equal(segments.labels == 1, other)
        assert np.array_equal(segments.labels == 0, adjacent)
        negatives += int(other.sum())
    # Two samples decide together, so the deviation is that of half as many coins.
    assert abs(negatives / (20 * view.pairs) - 0.5) < 5 * 0.5 / math.sqrt(10 * view.pairs)
    assert view.negative_share == pytest.approx(0.5)


def test_few_documents_still_give_half_negatives() -> None:
    view = view_of(store_of([[4] * 60, [4] * 40, [4] * 50], "wordpiece"), "sentence-pair", 24, objective="nsp")
    labels = np.concatenate([view.load(np.arange(view.pairs), epoch).pair_labels for epoch in range(200)])
    assert abs(labels.mean() - 0.5) < 0.03
    lopsided = view_of(store_of([[4] * 600, [4] * 4], "wordpiece"), "sentence-pair", 24, objective="nsp")
    assert 0 < lopsided.negative_share < 0.05, "what cannot be half is told"


def test_negatives_change_from_epoch_to_epoch_and_come_from_everywhere() -> None:
    store = many_documents()
    view = view_of(store, "sentence-pair", 44, objective="nsp")
    sources = [view._segments(np.array([5]), epoch) for epoch in range(60)]
    seconds = {int(s.second[0]) for s in sources if s.labels[0] == 1}
    assert len(seconds) > 20, "about thirty negatives, hardly one twice"


@pytest.mark.parametrize("format_", PAIR_FORMATS)
def test_half_of_the_pairs_are_swapped_and_types_follow_position(format_: Format) -> None:
    """B50: adjacent segments of one document, labels by order, no empty side, 10,000 draws."""
    store = many_documents()
    view = view_of(store, format_, 44, objective="sop")
    ids = np.arange(view.pairs)
    labels = []
    for epoch in range(-(-10_000 // view.pairs)):
        segments = view._segments(ids, epoch)
        forward = segments.first + segments.first_length == segments.second
        backward = segments.second + segments.second_length == segments.first
        assert np.array_equal(segments.labels, backward.astype(int))
        assert (forward ^ backward).all(), "adjacent"
        assert np.array_equal(document_of(store, segments.first), document_of(store, segments.second))
        assert min(segments.first_length.min(), segments.second_length.min()) > 0
        labels.append(segments.labels)
        samples = view.load(ids, epoch)
        after_cls = samples.starts + 1 + segments.first_length
        assert (samples.token_type_ids[after_cls] == 0).all(), "the separator belongs to the first segment"
        assert (samples.token_type_ids[after_cls + 1] == 1).all()
        assert int(samples.token_type_ids.sum()) == int((segments.second_length + 1).sum())
    assert abs(np.concatenate(labels).mean() - 0.5) < 0.03


def test_documents_of_one_sentence_have_no_order(tmp_path: Path) -> None:
    """B50: six documents with 1, 2, 5, 1, 8, 3 sentences, each with its numbers in it."""
    text = shared(CASES / "B50_docs.txt").read_text()
    assert text.count("\n\n") == 5
    store = prepared(tmp_path, text, "wordpiece", heldout=0.0, plan={"vocab_size": 120})
    assert np.diff(store.documents).tolist() == [1, 2, 5, 1, 8, 3]
    view = view_of(store, "sentence-pair", 40, objective="sop")
    labels = []
    for epoch in range(1000):
        samples = view.load(np.arange(view.samples), epoch)
        labels.append(samples.pair_labels)
        if epoch > 30:
            continue
        for row, label in zip(
            np.split(samples.original_ids(), np.cumsum(samples.lengths)[:-1]), samples.pair_labels, strict=True
        ):
            said = [
                int(word) for word in store.tokenizer.decode(row.tolist()).replace(".", " ").split() if word.isdigit()
            ]
            if label == NO_LABEL:
                assert len(said) == 2
            else:
                first, document, second, other = said
                assert document == other
                assert second - first == (1 if label == 0 else -1)
    table = np.array(labels)
    assert (table[:, : view.pairs] >= 0).all()
    assert (table[:, view.pairs :] == NO_LABEL).all()
    assert view.samples - view.pairs == 4, "the documents with 1, 5, 1 and 3 sentences leave one alone"
    assert abs(table[:, : view.pairs].mean() - 0.5) < 0.03


def test_masked_words_alone_give_no_pair_labels() -> None:
    for format_ in FORMATS:
        samples = view_of(many_documents(20), format_, 44).load(np.arange(5), 0)
        assert (samples.pair_labels == NO_LABEL).all()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("objective", ["mlm", "nsp", "sop"])
def test_a_sample_is_the_same_whoever_asks_for_it(format_: Format, objective: str) -> None:
    if objective != "mlm" and format_ not in PAIR_FORMATS:
        return
    store = many_documents(60)
    view = view_of(store, format_, 44, objective=objective)
    everything = view.load(np.arange(view.samples), 3)
    order = np.random.default_rng(0).permutation(view.samples)
    with ThreadPoolExecutor(4) as pool:
        other = view_of(store, format_, 44, objective=objective)
        parts = list(pool.map(lambda ids: other.load(ids, 3), np.array_split(order, 9)))
    starts = dict(zip(everything.ids.tolist(), everything.starts.tolist(), strict=True))
    for part in parts:
        for sample, begin, length in zip(part.ids.tolist(), part.starts.tolist(), part.lengths.tolist(), strict=True):
            here, there = slice(begin, begin + length), slice(starts[sample], starts[sample] + length)
            assert np.array_equal(part.input_ids[here], everything.input_ids[there])
            assert np.array_equal(part.original_ids()[here], everything.original_ids()[there])
            assert np.array_equal(part.token_type_ids[here], everything.token_type_ids[there])
        assert np.array_equal(part.pair_labels, everything.pair_labels[part.ids])


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_static_copies_repeat_masks_and_pairs_every_k_epochs(objective: str) -> None:
    store = many_documents(60)
    view = view_of(store, "segment-pair", 44, objective=objective, masking=Masking(style="static", copies=3))
    moving = view_of(store, "segment-pair", 44, objective=objective)
    ids = np.arange(view.samples)
    for epoch in range(6):
        now, then = view.load(ids, epoch), view.load(ids, epoch + 3)
        for name in ("input_ids", "masked_positions", "targets", "pair_labels"):
            assert np.array_equal(getattr(now, name), getattr(then, name))
        assert not np.array_equal(now.pair_labels, view.load(ids, epoch + 1).pair_labels)
        assert not np.array_equal(moving.load(ids, epoch).pair_labels, moving.load(ids, epoch + 3).pair_labels)


@settings(max_examples=30)
@given(documents=documents_st, multiple=st.sampled_from([1, 8]))
def test_padding_adds_nothing_but_padding(documents: list[list[int]], multiple: int) -> None:
    store = store_of(documents, "wordpiece")
    view = view_of(store, "segment-pair", 40)
    samples = view.load(np.arange(view.samples), 0)
    pad = store.vocabulary.pad_id
    padded = samples.padded(pad, multiple_of=multiple)
    assert padded.input_ids.shape[1] % multiple == 0
    assert padded.input_ids.shape[1] - samples.lengths.max() < multiple
    assert padded.attention_mask.sum(axis=1).tolist() == samples.lengths.tolist()
    assert np.array_equal(padded.input_ids[padded.attention_mask], samples.input_ids)
    assert np.array_equal(padded.token_type_ids[padded.attention_mask], samples.token_type_ids)
    assert (padded.input_ids[~padded.attention_mask] == pad).all()
    assert np.array_equal(
        padded.input_ids.ravel()[padded.masked_positions], samples.input_ids[samples.masked_positions]
    )


def test_the_heldout_split_has_the_other_documents() -> None:
    documents = [[3, 4], [5], [6, 2, 2], [7]]
    store = store_of(documents, heldout=2)
    train, heldout = view_of(store, "doc-sentences"), View(store, ViewSettings(format="doc-sentences"), HELDOUT)
    assert (train.tokens, heldout.tokens) == (12, 17)
    assert [len(row) - 2 for row in contents(heldout)] == [10, 7]


def test_impossible_views_are_refused_with_a_remedy() -> None:
    store = store_of([[3, 4], [5]])
    with pytest.raises(UsageError, match=r"nsp needs two segments .* segment-pair"):
        ViewSettings(format="full-sentences", objective="nsp")
    with pytest.raises(UsageError, match="no room for text"):
        view_of(store, "segment-pair", 5)
    with pytest.raises(DataError, match="does not have two documents with two sentences"):
        view_of(store, "sentence-pair", 40, objective="nsp")
    with pytest.raises(DataError, match=r"no document of .* has two sentences"):
        view_of(store_of([[3], [5]]), "sentence-pair", 40, objective="sop")
    with pytest.raises(DataError, match=r"'heldout'.*no documents"):
        View(store, ViewSettings(), HELDOUT)
    with pytest.raises(DataError, match="no split 'test'"):
        View(store, ViewSettings(), "test")
