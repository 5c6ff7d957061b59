import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats.contingency import association

from labelled.drift import chi_square_tail, drift

COUNTS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=2, max_size=30)


@given(st.floats(0.0, 5000.0), st.integers(1, 300))
def test_the_tail_is_that_of_scipy(statistic: float, freedom: int) -> None:
    assert math.isclose(
        chi_square_tail(statistic, freedom), stats.chi2.sf(statistic, freedom), rel_tol=1e-8, abs_tol=1e-300
    )


@given(COUNTS)
def test_the_test_is_that_of_scipy(counts: list[tuple[int, int]]) -> None:
    left, right = ({str(n): pair[side] for n, pair in enumerate(counts)} for side in (0, 1))
    table = np.array([pair for pair in counts if sum(pair)]).T
    found = drift(left, right)
    if table.size == 0 or table.shape[1] < 2 or not table.sum(axis=1).all():
        assert found is None
        return
    want = stats.chi2_contingency(table, correction=False)
    assert found is not None
    assert found.freedom == want.dof
    assert math.isclose(found.chi_square, want.statistic, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(found.p, want.pvalue, rel_tol=1e-6, abs_tol=1e-300)
    assert math.isclose(found.cramers_v, association(table), rel_tol=1e-9, abs_tol=1e-9)
    assert found.rough == bool(want.expected_freq.min() < 5)


def test_a_class_that_one_file_lacks_counts() -> None:
    found = drift({"a": 50, "b": 50}, {"a": 100})
    assert found is not None
    assert found.p == pytest.approx(stats.chi2_contingency([[50, 50], [100, 0]], correction=False).pvalue)
    assert drift({"a": 3}, {"a": 4}) is None
    assert drift({}, {"a": 4, "b": 1}) is None
