import json
from pathlib import Path
from typing import Any

import pytest

from contract.errors import DataError, UsageError
from loadtests.history import changes, read_report, render_changes
from loadtests.report import SCHEMA


def report(p50: float, *, width: float = 0.02, name: str = "albert", valid: bool = True) -> dict[str, Any]:
    def estimate(value: float) -> dict[str, float]:
        return {"value": value, "low": value / (1 + width), "high": value * (1 + width)}

    measured = {
        "latency_ms": {"p50": estimate(p50), "p95": estimate(2 * p50), "p99": estimate(3 * p50) | {"low": None}},
        "requests_per_s": estimate(1000 / p50),
    }
    return {
        "schema": SCHEMA,
        "verdict": {"valid": valid, "reasons": [] if valid else ["it failed"]},
        "subjects": [{"name": name}],
        "levels": [{"title": "1 user", "subjects": [measured]}],
    }


def test_what_changed_is_told_from_what_may_be_chance() -> None:
    found = {change.figure: change for change in changes(report(10), report(12), margin=0.05)}
    assert found["p50_ms"].verdict == "slower"
    assert found["p50_ms"].ratio.value == pytest.approx(1.2)
    assert found["p50_ms"].ratio.high == pytest.approx(1.2 * 1.02**2**0.5)
    assert found["p99_ms"].verdict == "not enough data", "one of them has no interval"
    assert found["requests_per_s"].verdict == "slower"
    same = changes(report(10), report(10.05), margin=0.05)
    assert same[0].verdict == "equivalent"
    vague = changes(report(10, width=0.3), report(12, width=0.3), margin=0.05)
    assert vague[0].verdict == "not enough data"
    assert "| albert, 1 user, p50_ms | 10.0 | 12.0 | 1.200 (1.167 to 1.234) | slower |" in render_changes(
        changes(report(10), report(12), margin=0.05)
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match=r"second report is not valid: it failed"):
        changes(report(10), report(10, valid=False), margin=0.05)
    with pytest.raises(UsageError, match=r"no service and load in common: albert with 1 user.*bert with 1 user"):
        changes(report(10), report(10, name="bert"), margin=0.05)


@pytest.mark.parametrize(
    ("content", "message"),
    [("no", "not JSON"), ("[]", "schema 'list'"), ('{"schema": "robal.loadtest.compare/1"}', "compare/1")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(DataError, match="cannot be read"):
        read_report(path)
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_report(path)
    path.write_text(json.dumps(report(3)))
    assert read_report(path)["subjects"][0]["name"] == "albert"
