import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtests.knee import CLOSE, MAX_STEPS, KneePlan, Step, find_knee, next_rate, step_of
from loadtests.load import Load
from loadtests.payloads import payloads, save_payloads, synthetic_texts
from tests.loadtests.runs import request, run
from tests.loadtests.scripted import servers_alive, subject

PLAN = KneePlan(target_ms=150, percent=99, seconds=2.5, warmup_s=0.3, threads=1, seed=0)


def step(rate: float, *, kept: bool) -> Step:
    return Step(
        rate=rate,
        p50_ms=1,
        p99_ms=2,
        promised_ms=2,
        failed=0,
        arrivals=9,
        completed_per_s=9,
        kept=kept,
        problem=None if kept else "slow",
    )


@pytest.mark.parametrize("truth", [0.02, 0.3, 0.61, 0.97, 1.4])
def test_the_search_ends_close_to_the_truth(truth: float) -> None:
    """A service that keeps its promise up to ``truth`` of what the closed loop found, 100 per second."""
    steps: list[Step] = []
    rate: float | None = 60.0
    while rate is not None and len(steps) < MAX_STEPS:
        steps.append(step(rate, kept=rate <= 100 * truth))
        rate = next_rate(steps)
    kept = max(s.rate for s in steps if s.kept)
    broken = min(s.rate for s in steps if not s.kept)
    assert kept <= 100 * truth < broken
    assert broken / kept <= (CLOSE if truth > 0.1 else 2)


def test_where_chance_contradicts_itself_the_lower_failure_counts() -> None:
    assert next_rate([step(60, kept=False), step(80, kept=True)]) == 30


def test_failures_break_the_promise_however_fast_they_are() -> None:
    good = [request(1.5 + n / 100, 10.0) for n in range(99)]
    assert step_of(run(good), 33, PLAN).kept
    bad = step_of(run([*good, request(3, 0.1, outcome="refused", status=429)]), 33, PLAN)
    assert not bad.kept
    assert bad.problem == "1 of 100 failed"
    slow = step_of(run([*good[:97], request(3, 900), request(3, 900)]), 33, PLAN)
    assert slow.problem is not None
    assert slow.problem.startswith("p99 is 900")
    assert not step_of(run([]), 33, PLAN).kept


def test_the_knee_of_a_service_that_answers_one_at_a_time(tmp_path: Path) -> None:
    """20 ms each and one at a time: 50 per second at most, and Poisson arrivals wait for each other well before."""
    save_payloads(tmp_path / "payloads.jsonl", payloads(synthetic_texts(256, seed=0)))
    knee = find_knee(subject("one", delay_ms=20, slots=1), PLAN, payloads=tmp_path / "payloads.jsonl", work=tmp_path)
    assert servers_alive() == 0
    assert 35 < knee.capacity_per_s <= 51
    assert knee.rate is not None
    assert 0.4 * knee.capacity_per_s < knee.rate < 1.15 * knee.capacity_per_s
    rates = [each.rate for each in knee.steps]
    assert rates == sorted(rates)
    assert all(each.p99_ms is None or each.p99_ms >= 20 for each in knee.steps)


def test_the_command_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from loadtests.cli import app

    monkeypatch.setattr("loadtests.subjects.open_subjects", lambda *a, **k: (subject("one", delay_ms=30, slots=1),))
    out = tmp_path / "knee"
    words = ["loadtest", "knee", "x", "--target-ms", "200", "--seconds", "1", "--warmup", "0.2", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads((out / "knee.json").read_text())
    (service,) = report["services"]
    assert report["verdict"]["clauses"][0] in done.output
    assert service["steps"]
    assert f"{service['steps'][0]['rate']:.3g}" in (out / "knee.md").read_text()
    assert "<svg" not in (out / "knee.html").read_text(), "drawings are images of their own"
    assert Load(users=8, warmup_s=0, seconds=1).title in "8 users"
