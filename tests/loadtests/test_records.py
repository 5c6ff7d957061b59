import json
from typing import Any

import pytest

from loadtests.load import Load
from loadtests.records import doubts, faults, health, read_records
from tests.loadtests.runs import request, run, steady_run


def test_phases_go_by_the_moment_of_sending() -> None:
    """Users are there at 0.5 s, warm-up lasts 1 s, the stop comes at 4.5 s."""
    sent = [0.1, 0.6, 1.499, 1.5, 3.0, 4.499, 4.5, 4.55]
    measured = run([request(at) for at in sent])
    assert [r.sent_s for r in measured.phase("warm-up")] == [0.1, 0.6, 1.499]
    assert [r.sent_s for r in measured.phase("steady")] == [1.5, 3.0, 4.499]
    assert [r.sent_s for r in measured.phase("cool-down")] == [4.5, 4.55]
    assert measured.measured_s == pytest.approx(3.0)


def test_a_slow_request_counts_although_its_answer_came_after_the_end() -> None:
    measured = run([request(2.0), request(4.0, 5000.0)])
    assert [r.latency_ms for r in measured.answered()] == [10.0, 5000.0]
    assert len(measured.completed()) == 1, "throughput counts what was answered in the measured time"


def test_a_request_of_the_warm_up_that_ends_later_counts_only_for_throughput() -> None:
    measured = run([request(1.4, 300.0), request(2.0)])
    assert len(measured.answered()) == 1
    assert len(measured.completed()) == 2


def test_a_test_that_ends_during_the_warm_up_measured_nothing() -> None:
    measured = run([request(0.6)], warmup_s=1.0, seconds=-0.5)
    assert measured.measured_s == 0
    assert measured.phase("steady") == []
    assert len(measured.phase("warm-up")) == 1


@pytest.mark.parametrize(
    ("outcome", "meaning"),
    [("error", "failed"), ("refused", "refused"), ("wrong", "wrong answer"), ("dropped", "dropped")],
)
def test_a_failure_never_improves_a_latency_and_makes_the_run_invalid(outcome: str, meaning: str) -> None:
    good = [request(2 + n / 100, 50.0) for n in range(90)]
    quick = [request(3 + n / 100, 0.5, outcome=outcome, problem="status 500") for n in range(10)]
    measured = run([*good, *quick])
    assert {r.latency_ms for r in measured.answered()} == {50.0}
    assert len(measured.completed()) == 90
    (fault,) = faults([measured])
    assert fault.startswith("10 of 100 requests")
    assert meaning in fault
    assert "status 500" in fault


def test_failures_of_the_warm_up_are_not_counted() -> None:
    assert faults([run([request(0.7, outcome="error", problem="x"), request(2.0)])]) == []


def test_no_right_answer_at_all_is_a_fault() -> None:
    (fault,) = faults([run([request(2.0)]), run([request(2.0, outcome="error", problem="no answer")])])
    assert fault == "no right answer in 3.0 measured seconds (mostly: no answer)"


def test_a_busy_generator_makes_the_run_invalid() -> None:
    assert faults([steady_run([50.0] * 100, cpu_share=0.5)]) == []
    (fault,) = faults([steady_run([50.0] * 100, cpu_share=0.93)])
    assert "the generator was the bottleneck: it used 93% of a core" in fault


def test_a_late_generator_makes_the_run_invalid() -> None:
    assert faults([steady_run([50.0] * 100, late_ms=5.9)]) == []
    (fault,) = faults([steady_run([50.0] * 100, late_ms=6.5)])
    assert "6.5 ms late" in fault


def test_a_few_hiccups_only_spoil_the_slowest_requests() -> None:
    rounds = [steady_run([50.0] * 100) for _ in range(19)] + [steady_run([50.0] * 100, late_ms=9.0)]
    assert faults(rounds) == []
    (doubt,) = doubts(rounds)
    assert "9.0 ms late (p99)" in doubt
    assert doubts(rounds[:19]) == []


def test_health_is_that_of_the_measured_time() -> None:
    generator = health([steady_run([50.0] * 100, cpu_share=0.25, late_ms=0.7)])
    assert generator.cpu_share == pytest.approx(0.25)
    assert generator.lateness_p50_ms == generator.lateness_p99_ms == 0.7


def lines(*records: dict[str, Any]) -> list[str]:
    return [json.dumps(record) for record in records]


def test_records_without_an_end_are_not_a_run() -> None:
    load = Load(users=1, warmup_s=1, seconds=3)
    ready, stop, end = (
        {"event": name, "at_s": at, "cpu_s": 1} for name, at in [("ready", 0.5), ("stop", 3), ("end", 3.1)]
    )
    whole = lines(ready, stop, end)
    assert read_records([whole, whole], load=load) is not None
    assert read_records([whole, whole[:2]], load=load) is None
    assert read_records([whole[:1]], load=load) is None
    assert read_records([[]], load=load) is None
