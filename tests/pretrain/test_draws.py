import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.draws import Draws, Permutation, hashed, key_of


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection_and_its_inverse_undoes_it(size: int, seed: int) -> None:
    permutation = Permutation(size, np.uint64(seed))
    positions = np.arange(size)
    items = permutation(positions)
    assert np.array_equal(np.sort(items), positions)
    assert np.array_equal(permutation.inverse(items), positions)
    assert permutation(positions[-1:])[0] == items[-1], "an item does not depend on what is asked for beside it"


def test_a_permutation_reaches_far_beyond_memory() -> None:
    permutation = Permutation(10**12 + 7, key_of("huge"))
    positions = np.array([0, 1, 10**12, 10**12 + 6])
    items = permutation(positions)
    assert ((items >= 0) & (items < 10**12 + 7)).all()
    assert np.array_equal(permutation.inverse(items), positions)


def test_every_permutation_of_four_items_is_about_equally_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        order = tuple(Permutation(4, key_of(seed))(np.arange(4)).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert min(seen.values()) > 120  # 200 expected
    assert max(seen.values()) < 300


@pytest.mark.parametrize("size", [1000, 1024, 5000])
def test_a_permuted_order_looks_random(size: int) -> None:
    positions = np.arange(size)
    first, second = (Permutation(size, key_of(1, "order", epoch))(positions) for epoch in (0, 1))
    limit = 4 / np.sqrt(size)
    assert abs(np.corrcoef(first, positions)[0, 1]) < limit
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < limit
    assert np.count_nonzero(first == positions) < 10  # fixed points: one expected


def test_draws_are_the_stream_of_numpys_philox_at_the_samples_counter() -> None:
    draws = Draws(7, "masks")
    draws.words(1, 0, 3)
    key = np.array([np.uint64(7), key_of("masks")], dtype=np.uint64)
    oracle = np.random.Philox(key=key, counter=np.array([0, 41, 5, 0], dtype=np.uint64)).random_raw(11)
    assert np.array_equal(draws.words(41, 5, 11), oracle)
    assert np.array_equal(draws.words(41, 5, 4), oracle[:4])


def test_every_part_of_a_key_changes_the_draws() -> None:
    words = [
        Draws(seed, purpose).words(sample, round_, 4).tolist()
        for seed, purpose, sample, round_ in [
            (0, "a", 0, 0),
            (1, "a", 0, 0),
            (0, "b", 0, 0),
            (0, "a", 1, 0),
            (0, "a", 0, 1),
        ]
    ]
    assert len({tuple(row) for row in words}) == 5


def test_hashed_words_are_uniform_and_independent_of_neighbours() -> None:
    words = hashed(key_of(3), np.arange(100_000))
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert (np.abs(bits.mean(axis=0) - 0.5) < 0.008).all()  # five standard deviations
    assert abs(np.corrcoef(words[1:].astype(float), words[:-1].astype(float))[0, 1]) < 0.016


def test_hashed_is_twice_the_finaliser_of_splitmix64() -> None:
    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    values = [0, 1, 2**63 + 12345]
    assert mix(0) == 0xE220A8397B1DCDAF, "the first output of SplitMix64 with seed 0"
    expected = [mix((mix(value ^ 77) + 77) % 2**64) for value in values]
    assert hashed(np.uint64(77), np.array(values, dtype=np.uint64)).tolist() == expected


def test_the_numbers_are_the_ones_of_every_release() -> None:
    """A change here would silently change every resumed run."""
    assert int(key_of(1, "order", 2)) == 3343695078687376972
    assert Permutation(10, np.uint64(1))(np.arange(10)).tolist() == [3, 0, 8, 2, 6, 5, 9, 1, 7, 4]
    assert Draws(1, "masks").words(2, 3, 2).tolist() == [13146158350647724977, 16522808040311335333]
