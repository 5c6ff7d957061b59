"""Exact statistics: every count is compared with its expectation within five standard deviations."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from contract.errors import DataError, UsageError
from pretrain.masking import Masked, Masker, Masking
from pretrain.tokenizer import KINDS, TokenizerKind
from pretrain.vocabulary import Vocabulary, describe, for_sentences
from tests.pretrain.stores import CASES, TEXT, shared, tiny_tokenizer

VOCABULARY = describe(tiny_tokenizer("bpe"))


def within(count: int, trials: int, probability: float) -> bool:
    return abs(count - trials * probability) <= 5 * math.sqrt(trials * probability * (1 - probability))


def batch(contents: list[list[int]], vocabulary: Vocabulary = VOCABULARY) -> tuple[np.ndarray, np.ndarray]:
    """(ids, lengths) of framed samples."""
    template = vocabulary.template
    rows = [[*template.before, *content, *template.after] for content in contents]
    return np.array([token for row in rows for token in row]), np.array([len(row) for row in rows])


def random_batch(samples: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    ordinary = VOCABULARY.ordinary_ids
    rng = np.random.default_rng(5)
    return batch([rng.choice(ordinary, length).tolist() for _ in range(samples)])


def masked(
    ids: np.ndarray, lengths: np.ndarray, masking: Masking, *, seed: int = 0, round_: int = 0, first: int = 0
) -> tuple[np.ndarray, Masked]:
    changed = ids.copy()
    result = Masker(VOCABULARY, masking, seed)(changed, lengths, np.arange(first, first + len(lengths)), round_)
    return changed, result


def test_of_the_chosen_tokens_80_percent_are_masked_10_random_and_10_kept() -> None:
    ids, lengths = random_batch(600, 100)
    changed, result = masked(ids, lengths, Masking())
    now, targets = changed[result.positions], result.targets
    count = len(targets)
    assert np.array_equal(targets, ids[result.positions])
    replaced = (now != VOCABULARY.mask_id) & (now != targets)
    # A random replacement is the token itself once in a while.
    same = 1 / len(VOCABULARY.ordinary_ids)
    assert within(np.count_nonzero(now == VOCABULARY.mask_id), count, 0.8)
    assert within(np.count_nonzero(replaced), count, 0.1 * (1 - same))
    assert within(np.count_nonzero(now == targets), count, 0.1 + 0.1 * same)
    assert count == 600 * 15, "100 tokens have exactly 15 masked ones"


def test_nothing_outside_the_chosen_positions_changes() -> None:
    ids, lengths = random_batch(50, 30)
    changed, result = masked(ids, lengths, Masking())
    assert set(np.flatnonzero(changed != ids)) <= set(result.positions.tolist())
    assert (np.diff(result.positions) > 0).all()


def test_random_replacements_are_all_ordinary_tokens_alike() -> None:
    ids, lengths = random_batch(2000, 100)
    changed, result = masked(ids, lengths, Masking(mask_share=0.0, random_share=1.0))
    now = changed[result.positions]
    assert not VOCABULARY.special[now].any()
    counts = np.bincount(now, minlength=VOCABULARY.size)[VOCABULARY.ordinary_ids]
    expected = len(now) / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < len(counts) + 5 * math.sqrt(2 * len(counts))


def test_every_place_is_chosen_equally_often() -> None:
    ids, lengths = random_batch(4000, 20)
    _, result = masked(ids, lengths, Masking())
    places = np.bincount((result.positions % 22) - 1, minlength=20)
    assert all(within(count, 4000, 0.15) for count in places.tolist())


@pytest.mark.parametrize("length", [7, 10, 33])
def test_the_rate_is_exact_on_average_where_15_percent_is_no_whole_number(length: int) -> None:
    ids, lengths = random_batch(3000, length)
    _, result = masked(ids, lengths, Masking())
    counts = np.bincount(result.positions // (length + 2), minlength=3000)
    low = int(0.15 * length)
    assert set(counts.tolist()) == ({low, low + 1} if low else {1})
    if low:
        assert within(np.count_nonzero(counts == low + 1), 3000, 0.15 * length - low)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [("bpe", "token"), ("unigram", "token"), ("wordpiece", "token"), ("bpe", "word"), ("unigram", "ngram")],
)
def test_special_tokens_are_never_chosen_nor_produced(kind: TokenizerKind, unit: str) -> None:
    """B47: ten thousand samples with specials in the middle, as a pair and as documents with separators."""
    vocabulary = describe(tiny_tokenizer(kind))
    ordinary, special = vocabulary.ordinary_ids, np.flatnonzero(vocabulary.special)
    rng = np.random.default_rng(1)
    rows = [
        [*rng.choice(ordinary, 6), *rng.choice(special, 2), *rng.choice(ordinary, 5), vocabulary.pad_id]
        for _ in range(10_000)
    ]
    ids, lengths = batch(rows, vocabulary)
    changed = ids.copy()
    result = Masker(vocabulary, Masking(unit=unit), 0)(changed, lengths, np.arange(len(rows)), 0)
    assert not vocabulary.special[result.targets].any()
    assert not vocabulary.special[ids[result.positions]].any()
    now = changed[result.positions]
    assert ((now == vocabulary.mask_id) | ~vocabulary.special[now]).all()
    assert np.array_equal(changed[vocabulary.special[ids]], ids[vocabulary.special[ids]])


def test_a_sample_with_nothing_to_mask_is_flagged() -> None:
    ids, lengths = batch([[5, 6, 7], [], [3, 3], [9]])
    _, result = masked(ids, lengths, Masking())
    assert result.maskable.tolist() == [True, False, False, True]
    owners = np.searchsorted(np.cumsum(lengths), result.positions, side="right")
    assert owners.tolist() == [0, 3]
    for unit in ("token", "word", "ngram"):
        ids, lengths = batch([[], []])
        _, nothing = masked(ids, lengths, Masking(unit=unit))
        assert len(nothing.positions) == 0
        assert not nothing.maskable.any()


@pytest.mark.parametrize("seed", range(5))
def test_the_shortest_lines_always_have_a_masked_token(seed: int) -> None:
    """B48: batches of one, at most eight tokens, forty lines."""
    lines = shared(CASES / "B48_short_lines.txt").read_text().splitlines()
    tokenizer = tiny_tokenizer("bpe")
    for number, line in enumerate(lines[:40]):
        ids, lengths = batch([tokenizer.encode(line, add_special_tokens=False).ids[:6]])
        _, result = masked(ids, lengths, Masking(), seed=seed, first=number)
        assert len(result.positions) >= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["word", "ngram"])
def test_a_word_is_masked_whole_or_not_at_all(kind: TokenizerKind, unit: str) -> None:
    tokenizer = tiny_tokenizer(kind)
    vocabulary = describe(tokenizer)
    encoder, prefix = for_sentences(tokenizer)
    content = encoder.encode(prefix + "".join(TEXT), add_special_tokens=False).ids
    ids, lengths = batch([content] * 400, vocabulary)
    changed = ids.copy()
    result = Masker(vocabulary, Masking(unit=unit, mask_share=1.0, random_share=0.0), 3)(
        changed, lengths, np.arange(400), 0
    )
    words = np.cumsum(vocabulary.word_starts(ids))
    chosen = np.zeros(len(ids), dtype=bool)
    chosen[result.positions] = True
    candidates = ~vocabulary.special[ids]
    for word in np.unique(words[result.positions])[:3000]:
        assert chosen[(words == word) & candidates].all()
    assert np.count_nonzero(vocabulary.word_starts(np.array(content))) < len(content), "some words have several tokens"
    assert abs(len(result.positions) / candidates.sum() - 0.15) < 0.01


def test_ngrams_have_the_lengths_of_the_paper() -> None:
    """6/11, 3/11 and 2/11 for one, two and three words. A rate so low that runs rarely touch shows single n-grams."""
    assert VOCABULARY.words is not None
    word = int(np.flatnonzero(VOCABULARY.words.opens & ~VOCABULARY.special)[0])
    ids, lengths = batch([[word] * 300] * 4000)
    assert VOCABULARY.word_starts(ids).all(), "each token is a word here"
    _, result = masked(ids, lengths, Masking(unit="ngram", rate=0.001, mask_share=1.0, random_share=0.0))
    owner = np.searchsorted(np.cumsum(lengths), result.positions, side="right")
    runs = Counter(np.bincount(owner, minlength=4000).tolist())
    total = sum(runs.values())
    assert total == 4000, "one n-gram for each sample"
    assert set(runs) == {1, 2, 3}
    assert within(runs[1], total, 6 / 11)
    assert within(runs[2], total, 3 / 11)
    assert within(runs[3], total, 2 / 11)
    assert (np.diff(result.positions)[owner[1:] == owner[:-1]] == 1).all(), "an n-gram is a run"


@given(data=st.data(), unit=st.sampled_from(["token", "word", "ngram"]))
def test_a_samples_mask_does_not_depend_on_its_company(data: st.DataObject, unit: str) -> None:
    ordinary = VOCABULARY.ordinary_ids.tolist()
    contents = data.draw(st.lists(st.lists(st.sampled_from(ordinary), max_size=12), min_size=1, max_size=6))
    seed, round_ = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    masking = Masking(unit=unit)
    ids, lengths = batch(contents)
    together, result = masked(ids, lengths, masking, seed=seed, round_=round_)
    ends = np.cumsum(lengths)
    for number, content in enumerate(contents):
        alone, own = masked(*batch([content]), masking, seed=seed, round_=round_, first=number)
        begin = ends[number] - lengths[number]
        assert np.array_equal(together[begin : ends[number]], alone)
        inside = (result.positions >= begin) & (result.positions < ends[number])
        assert np.array_equal(result.positions[inside] - begin, own.positions)


def test_static_masks_come_back_every_k_epochs_and_dynamic_ones_do_not() -> None:
    ids, lengths = random_batch(20, 40)
    static, dynamic = Masking(style="static", copies=10), Masking()
    at = {
        epoch: masked(ids, lengths, static, round_=static.round_of(epoch))[1].positions.tolist() for epoch in range(40)
    }
    for epoch in range(40):
        assert at[epoch] == at[epoch % 10]
    assert len({tuple(positions) for positions in at.values()}) == 10
    moving = {tuple(masked(ids, lengths, dynamic, round_=dynamic.round_of(e))[1].positions.tolist()) for e in range(40)}
    assert len(moving) == 40


def test_unknown_kinds_of_tokenizers_refuse_words_and_accept_tokens() -> None:
    tokenizer = Tokenizer.from_str(tiny_tokenizer("bpe").to_str())
    tokenizer.pre_tokenizer = None
    vocabulary = describe(tokenizer)
    Masker(vocabulary, Masking(), 0)
    for unit in ("word", "ngram"):
        with pytest.raises(DataError, match="neither byte-level BPE, unigram nor WordPiece"):
            Masker(vocabulary, Masking(unit=unit), 0)


@pytest.mark.parametrize(
    "wrong",
    [{"style": "fixed"}, {"unit": "char"}, {"rate": 0.0}, {"copies": 0}, {"mask_share": 0.95, "random_share": 0.1}],
)
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(UsageError):
        Masking(**wrong)
