import math

import numpy as np
import pytest

from pretrain.signatures import SHINGLE, SIMILARITY, WIDTH, mark_near_duplicates, signature


def shingles(ids: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(ids[i : i + SHINGLE].tolist()) for i in range(max(1, len(ids) - SHINGLE + 1))}


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    return len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b))


def edited(ids: np.ndarray, changes: int, rng: np.random.Generator) -> np.ndarray:
    other = ids.copy()
    other[rng.choice(len(ids), changes, replace=False)] = rng.integers(5, 8000, changes)
    return other


@pytest.mark.parametrize("length", [60, 700, 20_000])
def test_signatures_estimate_the_similarity_of_the_token_runs(length: int) -> None:
    rng = np.random.default_rng(length)
    base = rng.integers(5, 8000, length).astype(np.uint16)
    for share in (0.0, 0.01, 0.05, 0.2):
        other = edited(base, int(share * length), rng)
        exact = jaccard(base, other)
        estimate = float((signature(base) == signature(other)).mean())
        assert abs(estimate - exact) <= 4 * math.sqrt(max(exact * (1 - exact), 0.01) / WIDTH)


def test_a_text_shorter_than_a_run_has_a_signature() -> None:
    one, same, other = (signature(np.array(ids, dtype=np.uint16)) for ids in ([7], [7], [8]))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("rows_in_memory", [3, 50, 10_000])
def test_later_documents_that_almost_equal_an_earlier_one_go(rows_in_memory: int) -> None:
    rng = np.random.default_rng(4)
    documents, expected = [], []
    for _ in range(60):
        base = rng.integers(5, 8000, 400).astype(np.uint16)
        documents += [base, edited(base, 4, rng), edited(base, 200, rng), rng.permutation(base)]
        expected += [True, jaccard(documents[-4], documents[-3]) < SIMILARITY, True, True]
    signatures = np.stack([signature(ids) for ids in documents])
    alive = np.ones(len(documents), dtype=bool)
    dropped = mark_near_duplicates(signatures, alive, rows_in_memory)
    assert alive.tolist() == expected
    assert dropped == 60


def test_dead_documents_pull_nobody_down() -> None:
    base = np.arange(5, 300, dtype=np.uint16)
    signatures = np.stack([signature(base)] * 3)
    alive = np.array([False, True, True])
    assert mark_near_duplicates(signatures, alive, 100) == 1
    assert alive.tolist() == [False, True, False]
    assert mark_near_duplicates(signatures[:0], alive[:0], 100) == 0
