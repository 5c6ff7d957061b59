"""The laboratory against services whose behaviour is known: what it reports is the truth."""

import multiprocessing
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from loadtests.compare import Plan, visit_all
from loadtests.driver import drive
from loadtests.estimates import estimate_percentile_ratio
from loadtests.load import Load, schedule
from loadtests.payloads import payloads, save_payloads, synthetic_texts
from loadtests.records import Run, faults, health, latencies
from loadtests.report import build_report
from loadtests.servers import serving
from loadtests.verdict import judge
from tests.loadtests.scripted import scripted, subject

MACHINE = {"cores_usable": 2, "versions": {"robal": "0"}}


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traffic") / "payloads.jsonl"
    save_payloads(path, payloads(synthetic_texts(512, seed=1), labels=["a"] * 512))
    return path


def driven(load: Load, traffic: Path, work: Path, **options: object) -> Run:
    with serving(scripted(**options), name="scripted", work=work) as server:
        return drive(server.url, load, payloads=traffic, work=work)


def reported(load: Load, traffic: Path, work: Path, *, target_ms: float = 50, **options: object) -> dict[str, Any]:
    """What a report says about a scripted service with one load."""
    plan = Plan(loads=(load,), rounds=1, threads=1, seed=0, target_ms=target_ms)
    subjects = [subject("scripted", **options)]
    visits = visit_all(subjects, plan, payloads=[traffic], work=work)
    report = build_report(subjects, plan, visits, machine=MACHINE, traffic={}, command="", created="")
    return {"verdict": report["verdict"]} | report["levels"][0]["subjects"][0]


OPEN = Load(rate=60, warmup_s=0.5, seconds=4, seed=3)
CLOSED = Load(users=3, warmup_s=0.5, seconds=4)


@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=["open", "closed"])
def test_percentiles_are_those_of_the_service(load: Load, traffic: Path, tmp_path: Path) -> None:
    """Each tenth answer takes 120 ms, the others 10 ms. The service tells how long it really took."""
    run = driven(load, traffic, tmp_path, delay_ms=10, tail_every=10, tail_ms=120, tell_time=True)
    assert not [fault for fault in faults([run]) if "bottleneck" not in fault]
    seen = latencies(run.answered())
    true = np.array([request.stages_ms["total"] for request in run.answered()])
    assert (seen >= true).all()
    assert np.median(seen) >= 10
    assert np.percentile(seen, 95) >= 120
    own_ms = health([run]).lateness_p99_ms + health([run]).send_late_p99_ms + 1
    for percent in (50, 95, 99):
        assert np.percentile(seen, percent) - np.percentile(true, percent) <= own_ms + 2
    share = np.mean(seen >= 120)
    assert share == pytest.approx(0.1, abs=0.03)


def test_an_open_loop_sends_what_is_due_and_when(traffic: Path, tmp_path: Path) -> None:
    due = schedule(OPEN)
    run = driven(OPEN, traffic, tmp_path, delay_ms=10)
    assert [request.sent_s for request in run.requests] == due.tolist()
    assert sorted(request.index for request in run.requests) == sorted(n % 512 for n in range(len(due)))
    assert all(request.late_ms >= 0 for request in run.requests)
    assert run.phase("cool-down") == []


def test_a_freeze_is_felt_by_everyone_who_would_have_come(traffic: Path, tmp_path: Path) -> None:
    """B59: for 2.5 of 8 seconds nothing is answered. A closed loop stands still with the service and hardly sees it."""
    options: dict[str, object] = {"delay_ms": 1, "freeze_after_s": 3.0, "freeze_for_s": 2.5}
    load = Load(rate=50, burstiness=0, warmup_s=0, seconds=8)
    run = driven(load, traffic, tmp_path, **options)
    assert len(run.requests) == len(schedule(load))
    waited = latencies(run.answered())
    assert (waited > 20).sum() >= 0.9 * 2.5 * 50, "all who were due in the freeze waited"
    assert np.percentile(waited, 95) > 1000
    assert waited.max() >= 2400
    assert waited.max() - 2500 <= health([run]).lateness_p99_ms + 200

    polite = driven(Load(users=5, warmup_s=0, seconds=8), traffic, tmp_path, **options)
    assert (latencies(polite.answered()) > 20).sum() < 50
    assert np.percentile(latencies(polite.answered()), 95) < 1000


def test_what_arrives_beyond_the_cap_is_dropped_and_counted(traffic: Path, tmp_path: Path) -> None:
    """B59: a rate that is not reached makes the run invalid."""
    load = Load(rate=50, burstiness=0, warmup_s=0, seconds=2, max_in_flight=4)
    run = driven(load, traffic, tmp_path, delay_ms=400)
    dropped = [request for request in run.requests if request.outcome == "dropped"]
    assert len(run.requests) == len(schedule(load))
    assert len(dropped) >= 100 - 4 * 6, "four at a time, 400 ms each, are twenty in two seconds"
    assert len(dropped) < 100
    assert any("were dropped by the generator" in fault for fault in faults([run]))
    assert not any(request.outcome == "dropped" for request in run.answered())


def test_fast_failures_and_wrong_labels_never_help(traffic: Path, tmp_path: Path) -> None:
    measured = reported(OPEN, traffic, tmp_path, delay_ms=20, fail_every=10, refuse_every=7, other_label_every=5)
    requests = measured["requests"]
    total = requests["steady"]
    for outcome, every in (("error", 10), ("refused", 7)):
        assert requests[outcome] == pytest.approx(total / every, abs=2 + 0.1 * total / every)
    assert requests["ok"] + requests["error"] + requests["refused"] == total
    assert measured["latency_ms"]["p50"]["value"] >= 20
    right = requests["ok"] - requests["mislabelled_texts"]
    assert 0 < requests["mislabelled_texts"] < requests["ok"]
    assert measured["goodput_per_s"] == pytest.approx(right / 4, rel=0.05)
    assert not measured["verdict"]["valid"]
    assert any("have another label than expected" in note for note in measured["verdict"]["notes"])


def test_answers_that_come_too_late_are_not_useful(traffic: Path, tmp_path: Path) -> None:
    measured = reported(OPEN, traffic, tmp_path, target_ms=60, delay_ms=10, tail_every=4, tail_ms=100)
    share = measured["goodput_per_s"] / measured["arrivals_per_s"]
    assert share <= 0.78
    assert measured["verdict"]["sentence"].endswith("are right and within 60 ms.")


def test_a_slow_start_stays_in_the_warm_up(traffic: Path, tmp_path: Path) -> None:
    """B63: the first answers take ten times as long."""
    load = Load(users=4, warmup_s=1.5, seconds=1.5)
    measured = reported(load, traffic, tmp_path, delay_ms=20, slow_first=20)
    assert measured["warmup"]["first_ms"] >= 200
    assert measured["latency_ms"]["max"] < measured["warmup"]["first_ms"]


def test_several_processes_share_the_load(traffic: Path, tmp_path: Path) -> None:
    for load in (
        Load(rate=80, warmup_s=0.3, seconds=1.5, processes=2),
        Load(users=4, warmup_s=0.3, seconds=1, processes=2),
    ):
        run = driven(load, traffic, tmp_path, delay_ms=20)
        assert set(run.by_process()) == {0, 1}
        assert not [fault for fault in faults([run]) if "bottleneck" not in fault]
        sent = sorted(request.index for request in run.requests)
        assert len(set(sent)) == len(sent), "no text twice"
        if load.is_open:
            assert [request.sent_s for request in run.requests] == schedule(load).tolist()
        else:
            changes = [(r.sent_s, 1) for r in run.requests] + [(r.done_s, -1) for r in run.requests]
            assert np.cumsum([change for _, change in sorted(changes)]).max() == 4


def burn() -> None:
    while True:
        pass


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not let a process choose its cores")
def test_a_starved_generator_is_found_out(traffic: Path, tmp_path: Path) -> None:
    """B60: the generator shares its core with five others; what it measures is itself."""
    cores = os.sched_getaffinity(0)
    with serving(scripted(delay_ms=2), name="scripted", work=tmp_path) as server:
        os.sched_setaffinity(0, {min(cores)})
        rivals = [multiprocessing.get_context("fork").Process(target=burn, daemon=True) for _ in range(5)]
        try:
            for rival in rivals:
                rival.start()
            run = drive(server.url, Load(users=4, warmup_s=0.5, seconds=2), payloads=traffic, work=tmp_path)
        finally:
            os.sched_setaffinity(0, cores)
            for rival in rivals:
                rival.kill()
                rival.join()
    assert any("the generator was the bottleneck" in fault for fault in faults([run]))


def test_arrivals_have_the_rate_and_the_burstiness_that_were_asked_for() -> None:
    for burstiness in (0.0, 0.5, 1.0, 3.0):
        load = Load(rate=200, burstiness=burstiness, warmup_s=0, seconds=500, seed=1)
        due = schedule(load)
        gaps = np.diff(due)
        assert len(due) == pytest.approx(100_000, rel=0.03)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness, abs=0.05)
        assert (due == schedule(load)).all()
    poisson = schedule(Load(rate=50, warmup_s=0, seconds=2000, seed=2))
    counts = np.bincount(poisson.astype(int), minlength=2000)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.1), "as many as a Poisson process has in a second"


def test_a_trace_is_replayed_from_the_start_again() -> None:
    due = schedule(Load(trace=(0.0, 0.1, 0.5), warmup_s=0, seconds=2))
    assert due.tolist() == pytest.approx([0, 0.1, 0.5, 0.75, 0.85, 1.25, 1.5, 1.6])


@pytest.mark.parametrize(
    ("truth", "verdict", "least", "most"),
    [
        (1.00, "equivalent", 0.9, 1.0),
        (1.00, "slower", 0.0, 0.05),
        (1.05, "equivalent", 0.0, 0.06),
        (1.10, "equivalent", 0.0, 0.0),
        (1.10, "slower", 0.9, 1.0),
    ],
)
def test_the_error_rates_of_the_verdict(
    truth: float, verdict: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: eight rounds of 60 requests; rounds differ by 8 % for both and by 1 % for each.

    A true ratio at the margin is called equivalent in 2.5 % of experiments, an equal one faster or slower in 2.5 %
    each; the bounds here leave room for 200 experiments.
    """
    monkeypatch.setattr("loadtests.estimates.REPLICATES", 200)
    rng = np.random.default_rng(7)
    said = 0
    for seed in range(200):
        shared = rng.normal(0, 0.08, (8, 1))
        rounds = [
            np.exp(np.log(10 * factor) + shared + rng.normal(0, 0.01, (8, 1)) + rng.normal(0, 0.1, (8, 60)))
            for factor in (1.0, truth)
        ]
        said += judge(estimate_percentile_ratio(list(rounds[0]), list(rounds[1]), 50, seed=seed)) == verdict
    assert least <= said / 200 <= most


def test_two_copies_of_one_service_are_equivalent_and_a_slower_one_is_not(traffic: Path, tmp_path: Path) -> None:
    plan = Plan(loads=(Load(users=1, warmup_s=0.2, seconds=1.2),), rounds=4, threads=1, seed=0)
    subjects = [subject("a", delay_ms=40), subject("copy", delay_ms=40), subject("slower", delay_ms=46)]
    visits = visit_all(subjects, plan, payloads=[traffic] * 3, work=tmp_path)
    report = build_report(subjects, plan, visits, machine=MACHINE, traffic={}, command="", created="")
    copy, slower = report["levels"][0]["ratios"][1:]
    assert copy["p50"]["verdict"] != "slower" or copy["p50"]["value"] < 1.05
    assert slower["p50"]["verdict"] == "slower"
    assert 1.08 < slower["p50"]["value"] < 1.22
    assert asdict(visits[0])["calibration_ms"] > 0


def test_nothing_is_left(tmp_path: Path) -> None:
    time.sleep(0.1)
    assert not [child for child in psutil.Process().children(recursive=True) if "locust" in " ".join(child.cmdline())]
