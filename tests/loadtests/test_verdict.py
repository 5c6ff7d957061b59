from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.estimates import Estimate, student_975
from loadtests.verdict import Claim, Comparison, Rival, clauses, describe, fold, judge, rounds_needed, sentence


def ratio(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high)


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.00, 0.97, 1.03, "equivalent"),
        (0.98, 0.97, 0.99, "equivalent"),  # a real difference, but too small to matter
        (1.00, 0.953, 1.05, "equivalent"),
        (0.90, 0.88, 0.92, "faster"),
        (0.95, 0.91, 0.99, "faster"),
        (1.10, 1.06, 1.15, "slower"),
        (1.04, 1.01, 1.07, "slower"),
        (1.00, 0.90, 1.10, "not enough data"),
        (1.20, 0.99, 1.45, "not enough data"),
        (1.00, None, None, "not enough data"),
    ],
)
def test_judge(value: float, low: float | None, high: float | None, verdict: str) -> None:
    estimate = ratio(value, low, high)
    assert judge(estimate) == verdict
    assert judge(estimate.inverse, higher_is_better=True) == verdict


@given(st.floats(0.2, 5), st.floats(1, 3), st.floats(0.01, 0.5))
def test_swapping_the_servers_swaps_the_verdict(value: float, width: float, margin: float) -> None:
    estimate = ratio(value, value / width, value * width)
    swapped = {"faster": "slower", "slower": "faster"}
    verdict = judge(estimate, margin=margin)
    assert judge(estimate.inverse, margin=margin) == swapped.get(verdict, verdict)


@given(st.floats(0.5, 2), st.floats(1.0001, 2), st.integers(3, 50))
def test_the_rounds_that_are_asked_for_would_settle_it(value: float, width: float, rounds: int) -> None:
    estimate = ratio(value, value / width, value * width)
    needed = rounds_needed(estimate, rounds=rounds)
    if judge(estimate) == "not enough data" and needed is not None:
        assert needed > rounds
        student = student_975(needed - 1) / student_975(rounds - 1)
        shrunk = width ** (student * (rounds / needed) ** 0.5)
        assert judge(ratio(value, value / shrunk, value * shrunk)) != "not enough data"


def test_a_hopeless_ratio_asks_for_no_rounds() -> None:
    assert rounds_needed(ratio(1.0), rounds=2) is None
    assert rounds_needed(ratio(1.025, 0.2, 5), rounds=3) is None


def words(value: float, low: float | None = None, high: float | None = None, *, rate: bool = False) -> str:
    comparison = Comparison(what="it", ratio=ratio(value, low, high), higher_is_better=rate)
    return describe(comparison, rounds=6)


def test_describe() -> None:
    assert words(0.99, 0.97, 1.02) == "it is 0.99x (95% CI 0.97-1.02): no difference beyond 5%"
    assert words(0.8, 0.78, 0.83) == "it is 0.80x (95% CI 0.78-0.83): faster"
    assert words(0.95, 0.91, 0.99) == "it is 0.95x (95% CI 0.91-0.99): faster, though perhaps by less than 5%"
    assert words(1.3, 1.2, 1.4) == "it is 1.30x (95% CI 1.20-1.40): slower"
    assert words(1.3, 1.2, 1.4, rate=True) == "it is 1.30x (95% CI 1.20-1.40): higher"
    assert words(0.8, 0.78, 0.83, rate=True) == "it is 0.80x (95% CI 0.78-0.83): lower"
    assert words(1.0) == "it is 1.00x, but that is not enough data for an interval"
    open_gain = words(1.01, 0.97, 1.06)
    assert "no gain beyond 5%, but not enough data" in open_gain
    assert "rounds would be" in open_gain
    assert "no gain" not in words(0.98, 0.9, 1.06)


ALBERT = Rival(
    name="albert",
    size_ratio=1 / 10.6,
    memory_ratio=1 / 3.1,
    comparisons=[Comparison(what="with 1 user its median latency", ratio=ratio(0.99, 0.97, 1.02))],
)
CLAIM = Claim(a="roberta", rivals=[ALBERT], rounds=6)


def test_the_sentence_that_a_sceptic_reads() -> None:
    assert sentence(CLAIM) == (
        "albert is 10.6x smaller on disk and takes 3.1x less memory than roberta; "
        "with 1 user its median latency is 0.99x (95% CI 0.97-1.02): no difference beyond 5%."
    )
    assert sentence(CLAIM) == "; ".join(clauses(CLAIM)) + "."


def test_the_sentence_tells_where_a_gain_is() -> None:
    bands = [
        Comparison(what="for the shortest quarter it", ratio=ratio(0.8, 0.75, 0.86)),
        Comparison(what="for the second quarter it", ratio=ratio(0.96, 0.94, 0.98)),  # within the margin: noise
        Comparison(what="for the longest quarter it", ratio=ratio(1.2)),
    ]
    text = sentence(replace(CLAIM, rivals=[replace(ALBERT, bands=bands)]))
    assert "for the shortest quarter it is 0.80x" in text
    assert "second" not in text
    assert "longest" not in text


@pytest.mark.parametrize(
    ("size", "memory", "words"),
    [
        (1.0, 1.0, "albert is as large on disk and in memory as roberta"),
        (2.0, 0.5, "albert is 2.0x larger on disk and takes 2.0x less memory than roberta"),
        (0.5, 1.01, "albert is 2.0x smaller on disk and takes no less memory than roberta"),
        (1.04, 3.0, "albert is no smaller on disk and takes 3.0x more memory than roberta"),
    ],
)
def test_sizes_in_words(size: float, memory: float, words: str) -> None:
    assert clauses(replace(CLAIM, rivals=[replace(ALBERT, size_ratio=size, memory_ratio=memory)]))[0] == words


def test_each_rival_has_its_own_statements_and_a_service_alone_has_others() -> None:
    bert = replace(ALBERT, name="bert", size_ratio=None, memory_ratio=None)
    parts = clauses(replace(CLAIM, rivals=[ALBERT, bert]))
    assert parts[0].startswith("albert is 10.6x smaller")
    assert parts[2].startswith("bert beside roberta: with 1 user its median latency is 0.99x")
    assert sentence(replace(CLAIM, rivals=[], alone=["it answers"])) == "it answers."


def test_an_invalid_run_claims_nothing() -> None:
    text = sentence(replace(CLAIM, reasons=["albert with 1 user: 3 of 90 requests failed"]))
    assert text.startswith("Not valid")
    assert "3 of 90 requests failed" in text
    assert "smaller" not in text
    assert "0.99" not in text


@given(st.floats(0.001, 1000))
def test_fold_is_at_least_one(value: float) -> None:
    assert float(fold(value).rstrip("x")) >= 1
