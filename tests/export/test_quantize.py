"""Weights in 8 bits: close, and never able to saturate."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from export.quantize import ACTIVATION_MAX, INT16_MAX, largest_pair_product, quantize_columns, quantize_rows

WEIGHTS = arrays(
    np.float32,
    st.tuples(st.integers(1, 9), st.integers(1, 5)),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)


@given(WEIGHTS)
def test_no_pair_of_products_exceeds_16_bits(weight: np.ndarray) -> None:
    values = quantize_columns(weight).values.astype(np.int64)
    for column in values.T:
        for first in range(0, len(column), 2):
            pair = column[first : first + 2]
            assert ACTIVATION_MAX * pair[pair > 0].sum() <= INT16_MAX
            assert ACTIVATION_MAX * -pair[pair < 0].sum() <= INT16_MAX + 1  # -32768 fits
    assert largest_pair_product(quantize_columns(weight).values) <= INT16_MAX


@given(WEIGHTS)
def test_a_stored_weight_is_within_half_a_step(weight: np.ndarray) -> None:
    for quantized in (quantize_columns(weight), quantize_rows(weight)):
        step = quantized.scales
        error = np.abs(quantized.values * step - weight)
        assert (error <= 0.5001 * step + 1e-6 * np.abs(weight)).all()
        assert step.dtype == np.float32
        assert quantized.values.dtype == np.int8


def test_the_usual_scale_would_saturate_and_ours_costs_less_than_a_bit() -> None:
    weight = np.random.default_rng(0).normal(size=(768, 64)).astype(np.float32)
    usual = np.rint(weight / (np.abs(weight).max(axis=0) / 127)).astype(np.int8)
    assert largest_pair_product(usual) > INT16_MAX
    ours = quantize_columns(weight)
    seven_bit = np.abs(weight).max(axis=0) / 64
    assert (ours.scales < seven_bit).all()


def test_the_bound_is_that_of_the_definition() -> None:
    values = np.array([[100, -5], [-100, -90], [3, 1], [4, 2], [7, 0]], np.int8)
    assert largest_pair_product(values) == 255 * 100, "the first pair of column 0 pulls in two directions"
    assert largest_pair_product(values[:, 1:]) == 255 * 95
    assert largest_pair_product(np.zeros((0, 3), np.int8)) == 0
