from typing import Any
from xml.etree import ElementTree

import pytest

from contract.errors import UsageError
from loadtests.assertions import check, check_names, junit, parse


def measured(p99: float, errors: int = 0) -> dict[str, Any]:
    return {
        "latency_ms": {"p50": {"value": p99 / 3}, "p95": {"value": p99 / 2}, "p99": {"value": p99}},
        "requests": {"error": errors, "refused": 0, "wrong": 0, "dropped": 0, "mislabelled_texts": 0},
        "requests_per_s": {"value": 10.0},
        "texts_per_s": {"value": 10.0},
        "goodput_per_s": 9.0,
    }


REPORT = {
    "verdict": {"reasons": []},
    "subjects": [
        {"name": "roberta-base", "family": "roberta", "size_bytes": 500, "memory": {"after_load_rss_bytes": 700}},
        {"name": "albert-base", "family": "albert", "size_bytes": 47, "memory": {"after_load_rss_bytes": 300}},
    ],
    "levels": [
        {"title": "1 user", "subjects": [measured(40), measured(41)]},
        {"title": "8 users", "subjects": [measured(90), measured(95, errors=2)]},
    ],
}


@pytest.mark.parametrize(
    "condition",
    [
        "p99_ms < 96",
        "albert.size_bytes < 0.2 * roberta.size_bytes",
        "b.size_bytes / a.size_bytes <= 0.094",
        "albert_base.memory_bytes - roberta_base.memory_bytes == -400",
        "roberta.errors == 0",
        "albert.p99_ms < 1.1 * roberta.p99_ms",
        "goodput_per_s >= 9",
    ],
)
def test_what_holds(condition: str) -> None:
    assert check(condition, REPORT).problem is None


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("p99_ms < 95", "95 and 95 of albert-base, with 8 users"),
        ("errors == 0", "2 and 0 of albert-base, with 8 users"),
        ("a.size_bytes < b.size_bytes", "500 and 47, with 1 user"),
    ],
)
def test_what_does_not_hold_is_told_with_its_place(condition: str, where: str) -> None:
    assert check(condition, REPORT).problem == where


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "cannot be read"),
        ("p99_ms <", "cannot be read"),
        ("p99_ms", "not one comparison"),
        ("1 < p99_ms < 3", "not one comparison"),
        ("p98_ms < 3", "p98_ms is not a figure"),
        ("__import__('os') == 1", "is not allowed"),
        ("p99_ms < 'x'", "is not allowed"),
        ("a.b.size_bytes < 1", "is not allowed"),
        ("p99_ms ** 2 < 1", "is not allowed"),
    ],
)
def test_what_is_no_condition_is_refused_before_anything_is_measured(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(condition)


def test_a_service_that_is_not_measured_is_refused() -> None:
    check_names(["a.p99_ms < 1", "albert.p99_ms < 1", "x_y.errors == 0"], ["x-y", "z"], ["albert", None])
    with pytest.raises(UsageError, match="bert is not measured"):
        check_names(["bert.p99_ms < 1"], ["x", "z"], ["albert", "albert"])
    with pytest.raises(UsageError, match="albert is not measured"):
        check_names(["albert.p99_ms < 1"], ["x", "z"], ["albert", "albert"])


def test_junit_has_a_case_for_each_condition() -> None:
    verdicts = [check("p99_ms < 95", REPORT), check("errors < 3", REPORT)]
    suite = ElementTree.fromstring(junit(verdicts, REPORT))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    names = [case.get("name") for case in suite]
    assert names == ["the run is valid", "p99_ms < 95", "errors < 3"]
    assert [failure.get("message") for failure in suite.iter("failure")] == ["95 and 95 of albert-base, with 8 users"]
