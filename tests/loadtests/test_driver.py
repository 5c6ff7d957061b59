"""The generator against a server whose behaviour is known. Latencies are only bounded from below: machines differ."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from contract.errors import Failure, UsageError
from loadtests import driver
from loadtests.driver import CLOSED, check_url, drive
from loadtests.load import Load
from loadtests.payloads import payloads, save_payloads, synthetic_texts
from loadtests.processes import ROOT
from loadtests.records import Run, latencies
from loadtests.servers import serving
from tests.loadtests.scripted import scripted

TEXTS = synthetic_texts(200, seed=5)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traffic") / "payloads.jsonl"
    save_payloads(path, payloads(TEXTS))
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, traffic: Path) -> Run:
    """Four users, 20 ms; some answers are a 500, a 429 or wrong, and the first four take ten times as long."""
    work = tmp_path_factory.mktemp("work")
    command = scripted(delay_ms=20, slow_first=4, fail_every=10, refuse_every=11, wrong_every=12)
    with serving(command, name="scripted", work=work) as server:
        return drive(server.url, Load(users=4, warmup_s=0.5, seconds=1.0, offset=7), payloads=traffic, work=work)


def test_no_latency_is_shorter_than_the_truth(measured: Run) -> None:
    steady = latencies(measured.answered())
    assert steady.min() >= 20
    assert np.median(steady) >= 20
    assert any(value != round(value) for value in steady), "latencies are not rounded"


def test_outcomes_are_counted_exactly(measured: Run) -> None:
    """The server counts its answers in the order of the questions; failures first, as it does."""
    numbers = range(1, len(measured.requests) + 1)
    failed = [n for n in numbers if n % 10 == 0]
    refused = [n for n in numbers if n % 11 == 0 and n % 10]
    wrong = [n for n in numbers if n % 12 == 0 and n % 10 and n % 11]
    found = {name: sum(r.outcome == name for r in measured.requests) for name in ("error", "refused", "wrong", "ok")}
    assert found["error"] == len(failed) > 0
    assert found["refused"] == len(refused) > 0
    assert found["wrong"] == len(wrong) > 0
    assert found["ok"] == len(numbers) - len(failed) - len(refused) - len(wrong)


def test_the_slow_start_is_in_the_warm_up_and_nowhere_else(measured: Run) -> None:
    warm = latencies(measured.phase("warm-up"))
    assert sum(warm >= 200) >= 4
    assert min(request.sent_s for request in measured.requests if request.latency_ms >= 200) < 0.5
    assert measured.measured_s >= 0.99


def test_the_texts_are_sent_in_order_from_the_offset(measured: Run) -> None:
    indices = [request.index for request in sorted(measured.requests, key=lambda request: request.sent_s)]
    assert sorted(indices) == sorted((7 + n) % len(TEXTS) for n in range(len(indices)))
    for request in measured.answered():
        assert request.characters == len(TEXTS[request.index])
        assert request.tokens == len(TEXTS[request.index].split()) + 2


def test_the_stage_times_of_the_server_are_kept(measured: Run) -> None:
    assert dict(measured.answered()[0].stages_ms) == {"tokenize": 0.25, "queue": 0.5, "engine": 1.5, "total": 2.5}


def test_users_never_overlap_themselves(measured: Run) -> None:
    """A closed loop: at no moment are more requests on their way than there are users."""
    changes = [(r.sent_s, 1) for r in measured.requests] + [(r.done_s, -1) for r in measured.requests]
    assert np.cumsum([change for _, change in sorted(changes)]).max() <= 4


def test_the_number_of_requests_is_bounded(tmp_path: Path, traffic: Path) -> None:
    with serving(scripted(), name="scripted", work=tmp_path) as server:
        load = Load(users=2, warmup_s=0.0, seconds=30.0, max_requests=40)
        run = drive(server.url, load, payloads=traffic, work=tmp_path)
    assert not run.phase("warm-up")
    assert len(run.requests) == 40
    assert run.measured_s < 30


def test_a_dead_server_is_errors_not_latencies(tmp_path: Path, traffic: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound but not listening: refuses connections
        run = drive(
            f"http://127.0.0.1:{nobody.getsockname()[1]}",
            Load(users=2, warmup_s=0.0, seconds=0.5),
            payloads=traffic,
            work=tmp_path,
        )
    assert run.answered() == []
    assert {request.outcome for request in run.requests} == {"error"}
    assert len(run.requests) <= 20, "users wait after a failure instead of spinning"


def test_a_generator_that_breaks_is_one_error_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"(?s)load generator did not finish.*No such file"):
        drive("http://127.0.0.1:9", Load(users=1, warmup_s=0, seconds=1), payloads=tmp_path / "absent", work=tmp_path)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_hangs_ends_the_run_in_time(
    tmp_path: Path, traffic: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a limit of 1.1 s, below what the generator needs at the least: 0.5 s of load and 1 s for the last answer
    monkeypatch.setattr(driver, "STOP_S", 0.1)
    monkeypatch.setattr(driver, "ANSWER_S", 0.5)
    with pytest.raises(Failure, match=r"did not end within 1 s"):
        drive(silent, Load(users=1, warmup_s=0, seconds=0.5), payloads=traffic, work=tmp_path)
    assert not [child for child in psutil.Process().children(recursive=True) if "locust" in child.cmdline()]


def test_an_interrupt_leaves_no_generator(tmp_path: Path, traffic: Path, silent: str) -> None:
    def interrupt(elapsed_s: float) -> None:
        if elapsed_s > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(silent, Load(users=1, warmup_s=0, seconds=60), payloads=traffic, work=tmp_path, on_tick=interrupt)
    assert not [child for child in psutil.Process().children(recursive=True) if "locust" in child.cmdline()]


@pytest.mark.parametrize("url", ["http://10.0.0.1:3000", "http://example.org", "http://0.0.0.0:1"])
def test_other_hosts_are_refused_unless_they_are_allowed(url: str) -> None:
    with pytest.raises(UsageError, match="not on this machine"):
        check_url(url)
    check_url(url, allow_remote=True)


@pytest.mark.parametrize("url", ["x", "", "ftp://127.0.0.1", "http:///classify"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the address of a service"):
        check_url(url, allow_remote=True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "http://127.9.9.9"])
def test_loopback_is_fine(url: str) -> None:
    check_url(url)


def test_the_locust_file_also_works_with_the_plain_command(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    with serving(scripted(delay_ms=5), name="scripted", work=tmp_path) as server:
        # fmt: off
        command = [
            sys.executable, "-m", "locust", "-f", str(CLOSED), "--host", server.url,
            "--headless", "-u", "2", "-r", "2", "-t", "1s", "--only-summary",
        ]
        # fmt: on
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROBAL_LOADTEST_RECORDS": str(records)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "/classify" in done.stdout + done.stderr
    assert records.read_text().count('"outcome": "ok"') > 10


def test_the_generator_is_not_loaded_by_importing_the_driver() -> None:
    code = (
        "import sys, loadtests.driver, loadtests.compare; sys.exit('gevent' in sys.modules or 'locust' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
