import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from finetune.batches import budget_batches, epoch_batches, parts

lengths = st.lists(st.integers(2, 60), min_size=1, max_size=300)


@given(lengths, st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_holds_every_row_once_and_full_batches(sizes: list[int], batch_size: int, epoch: int) -> None:
    batches = epoch_batches(sizes, batch_size, seed=7, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert sum(len(batch) != batch_size for batch in batches) <= 1
    again = epoch_batches(sizes, batch_size, seed=7, epoch=epoch)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]


def test_epochs_and_seeds_have_their_own_order() -> None:
    orders = {
        tuple(np.concatenate(epoch_batches([5] * 64, 4, seed=seed, epoch=epoch)).tolist())
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    assert len(orders) == 6


def test_little_of_a_batch_is_padding_and_lengths_come_in_random_order() -> None:
    sizes = np.random.default_rng(0).lognormal(3, 0.7, size=4000).astype(int) + 2
    batches = epoch_batches(sizes.tolist(), 32, seed=0, epoch=0)
    padded = sum(sizes[batch].max() * len(batch) for batch in batches)
    assert padded < 1.1 * sizes.sum()
    longest = [int(sizes[batch].max()) for batch in batches]
    assert abs(np.corrcoef(range(len(longest)), longest)[0, 1]) < 0.3


@given(lengths, st.integers(1, 500))
def test_budget_batches_hold_every_row_once_within_the_budget(sizes: list[int], budget: int) -> None:
    batches = budget_batches(sizes, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[index] for index in batch) <= budget
    longest = [sizes[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_no_rows_make_no_batches() -> None:
    assert budget_batches([], 100) == []
    assert epoch_batches([], 4, seed=0, epoch=0) == []


@given(st.integers(1, 20), st.integers(1, 30))
def test_parts_are_the_batch(rows: int, count: int) -> None:
    batch = np.arange(rows)
    pieces = parts(batch, count)
    assert np.concatenate(pieces).tolist() == batch.tolist()
    assert all(len(piece) for piece in pieces)
    assert len(pieces) == min(rows, count)
