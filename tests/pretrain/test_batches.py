"""Order, steps, shares and resuming: the ledger of sample ids is the proof."""

import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import UsageError
from pretrain import batches
from pretrain.batches import Position, Step, Steps
from pretrain.layout import FORMATS, Format
from pretrain.views import View, ViewSettings
from tests.pretrain.stores import store_of


@lru_cache
def view_of(count: int = 90, format_: Format = "doc-sentences", objective: str = "mlm") -> View:
    rng = np.random.default_rng(3)
    store = store_of([rng.integers(2, 20, rng.integers(1, 9)).tolist() for _ in range(count)])
    return View(store, ViewSettings(format=format_, objective=objective, max_length=44))  # type: ignore[arg-type]


def sizes_of(tokens: int, samples: int, by_tokens: bool) -> dict[str, int]:
    return {"batch_tokens": tokens} if by_tokens else {"batch_samples": samples}


def ledger(steps: Steps, start: Position, epochs: int) -> list[Step]:
    return list(itertools.takewhile(lambda step: step.epoch < epochs, steps.start_at(start)))


@given(by_tokens=st.booleans(), samples=st.integers(1, 200), tokens=st.integers(1, 4000), block=st.integers(1, 50))
def test_every_sample_comes_once_in_each_epoch(by_tokens: bool, samples: int, tokens: int, block: int) -> None:
    view = view_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BLOCK", block)
        steps = Steps(view=view, **sizes_of(tokens, samples, by_tokens))
        taken = ledger(steps, Position(), 2)
    orders = []
    for epoch in (0, 1):
        ids = np.concatenate([step.ids for step in taken if step.epoch == epoch])
        assert np.array_equal(np.sort(ids), np.arange(view.samples))
        assert np.array_equal(ids, view.order(epoch)(np.arange(view.samples)))
        assert steps.count(epoch) == sum(step.epoch == epoch for step in taken)
        orders.append(ids.tolist())
    assert orders[0] != orders[1]


@given(by_tokens=st.booleans(), samples=st.integers(1, 60), tokens=st.integers(1, 2000), stop=st.integers(0, 10_000))
def test_resuming_anywhere_gives_the_steps_of_the_uninterrupted_run(
    by_tokens: bool, samples: int, tokens: int, stop: int
) -> None:
    """B46: also exactly at the end of an epoch."""
    steps = Steps(view=view_of(), **sizes_of(tokens, samples, by_tokens))
    whole = ledger(steps, Position(), 3)
    stop %= len(whole)
    rest = ledger(steps, whole[stop].after, 3)
    assert [(s.epoch, s.ids.tolist(), s.after) for s in rest] == [
        (s.epoch, s.ids.tolist(), s.after) for s in whole[stop + 1 :]
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_token_budget_is_filled_and_never_exceeded(format_: Format) -> None:
    view = view_of(format_=format_)
    taken = ledger(Steps(view=view, batch_tokens=300), Position(), 1)
    longest = int(view.lengths(np.arange(view.samples), 0).max())
    for step in taken[:-1]:
        assert 300 - longest < step.lengths.sum() <= 300
    assert taken[-1].lengths.sum() <= 300
    for step in taken[:3]:
        assert np.array_equal(view.load(step.ids, step.epoch).lengths, step.lengths)


def test_a_budget_below_one_sample_still_takes_one() -> None:
    assert all(len(step.ids) == 1 for step in ledger(Steps(view=view_of(), batch_tokens=1), Position(), 1))


def test_short_formats_get_larger_batches_with_the_same_tokens() -> None:
    tokens = {}
    for format_ in FORMATS:
        taken = ledger(Steps(view=view_of(400, format_), batch_tokens=1000), Position(), 1)[:-1]
        tokens[format_] = (np.mean([s.lengths.sum() for s in taken]), np.mean([len(s.ids) for s in taken]))
    totals = [total for total, _ in tokens.values()]
    assert max(totals) / min(totals) < 1.05
    assert tokens["sentence-pair"][1] > 1.2 * tokens["full-sentences"][1]


@given(parts=st.integers(1, 9), data=st.data())
def test_shares_hold_every_sample_once_in_order_and_are_balanced(parts: int, data: st.DataObject) -> None:
    lengths = np.array(data.draw(st.lists(st.integers(1, 512), min_size=1, max_size=60)))
    ids = np.arange(100, 100 + len(lengths))
    step = Step(epoch=0, ids=ids, lengths=lengths, after=Position())
    shares = step.shares(parts)
    assert len(shares) == parts
    assert np.array_equal(np.concatenate(shares), ids)
    for share in shares:
        assert lengths[share - 100].sum() <= lengths.sum() / parts + lengths.max()


@pytest.mark.parametrize("objective", ["mlm", "nsp"])
def test_ranks_and_micro_batches_see_the_samples_of_the_step(objective: str) -> None:
    """B53: seven samples and two ranks; whatever the split, the loaded samples are the same."""
    view = view_of(format_="segment-pair", objective=objective)
    step = next(Steps(view=view, batch_samples=7).start_at(Position(epoch=2, consumed=14)))
    whole = view.load(step.ids, step.epoch)
    for parts in (1, 2, 4, 10):
        loaded = [view.load(share, step.epoch) for share in step.shares(parts)]
        for name in ("ids", "lengths", "input_ids", "token_type_ids", "targets", "pair_labels"):
            assert np.array_equal(np.concatenate([getattr(part, name) for part in loaded]), getattr(whole, name))


def test_an_empty_share_loads_as_an_empty_batch() -> None:
    nothing = view_of().load(np.empty(0, dtype=np.int64), 0)
    assert len(nothing.input_ids) == len(nothing.targets) == len(nothing.pair_labels) == 0
    assert nothing.padded(0).input_ids.shape[0] == 0


def test_a_position_of_another_view_is_refused() -> None:
    view = view_of()
    with pytest.raises(UsageError, match="is this the same store"):
        next(Steps(view=view, batch_samples=4).start_at(Position(consumed=view.samples + 1)))
    assert next(Steps(view=view, batch_samples=4).start_at(Position(consumed=view.samples))).epoch == 1


def test_a_batch_has_exactly_one_size() -> None:
    for sizes in ({}, {"batch_samples": 4, "batch_tokens": 99}, {"batch_samples": 0}):
        with pytest.raises(UsageError):
            Steps(view=view_of(), **sizes)
