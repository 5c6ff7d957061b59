"""``robal serve`` as a user runs it: a real process, a real port, a real bundle."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.service.bundles import expected_logits
from tests.service.inprocess import problem

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("ROBAL_", "BENTOML_"))}


class Served:
    """A running ``robal serve``."""

    def __init__(self, bundle: Path, *options: str, cwd: Path | None = None) -> None:
        command = [sys.executable, "-m", "robal", "serve", str(bundle), "--port", "0", "--threads", "1", *options]
        self.process = subprocess.Popen(
            command, cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.line = self.process.stdout.readline().strip()  # type: ignore[union-attr]
        self.url = self.line.rpartition(" on ")[2]
        if not self.url:
            raise AssertionError(self.process.communicate(timeout=30)[1])

    def classify(self, inputs: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/classify", json={"inputs": inputs, **options}, timeout=60)

    def sample(self, name: str) -> float:
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    @property
    def worker(self) -> psutil.Process:
        (worker,) = psutil.Process(self.process.pid).children()
        return worker

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; exit code, rest of stdout, stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextlib.contextmanager
def serving(bundle: Path, *options: str, cwd: Path | None = None) -> Iterator[Served]:
    served = Served(bundle, *options, cwd=cwd)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()


@pytest.fixture(scope="module")
def running(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(words, cwd=tmp_path_factory.mktemp("elsewhere")) as served:
        yield served


def refused(*arguments: str) -> str:
    """Run ``robal serve`` that must end with exit code 2; its one sentence."""
    run = subprocess.run(
        [sys.executable, "-m", "robal", "serve", *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1, run.stderr
    return lines[0].removeprefix("robal: ")


def test_it_says_when_it_is_ready_and_is(running: Served) -> None:
    assert re.fullmatch(r"serving words \(roberta, fp32\) on http://127\.0\.0\.1:\d+", running.line)
    assert httpx.get(f"{running.url}/readyz").status_code == 200


def test_answers_come_from_the_model(running: Served) -> None:
    texts = ["good film", "the bad film", ""]
    results = running.classify(texts, raw_scores=True).json()["results"]
    for text, result in zip(texts, results, strict=True):
        got = {each["label"]: each["score"] for each in result["scores"]}
        np.testing.assert_allclose([got["negative"], got["positive"]], expected_logits(text), rtol=1e-5, atol=1e-6)


def test_the_routes_of_the_server_beneath_are_not_reachable(running: Served) -> None:
    for path in ("/docs.json", "/schema.json", "/healthz", "/static_content/x", "/nope"):
        problem(httpx.get(running.url + path), 404, "not_found")
    problem(httpx.post(f"{running.url}/readyz"), 405, "method_not_allowed")
    for path in ("/", "/livez", "/readyz", "/info", "/metrics", "/openapi.json", "/docs"):
        response = httpx.get(running.url + path)
        assert response.status_code == 200
        assert response.headers["x-request-id"]


def test_no_torch_and_nothing_heavy_is_in_any_process(running: Served) -> None:
    processes = [psutil.Process(running.process.pid), running.worker]
    for process in processes:
        files = {Path(region.path).name for region in process.memory_maps()}
        assert not [name for name in files if re.search("torch|transformers|sklearn|pyarrow", name)]
    assert any("onnxruntime" in region.path for region in running.worker.memory_maps())


def test_concurrent_requests_share_batches(running: Served) -> None:
    before = running.sample("robal_batch_items_count"), running.sample("robal_batch_items_sum")
    with ThreadPoolExecutor(17) as pool:
        slow = pool.submit(running.classify, "slow " * 14)
        time.sleep(0.05)
        rest = [pool.submit(running.classify, "good film") for _ in range(16)]
        assert slow.result().status_code == 200
        assert {each.result().status_code for each in rest} == {200}
    batches = running.sample("robal_batch_items_count") - before[0]
    assert running.sample("robal_batch_items_sum") - before[1] == 17
    assert batches < 17


def test_a_fault_of_the_model_costs_one_text_and_the_next_request_works(running: Served) -> None:
    for poison in ("broken", "nan"):
        message = problem(running.classify(poison), 500, "internal_error")
        assert "onnx" not in message.lower()
        fine, failed = running.classify(["good", poison]).json()["results"]
        assert ("label" in fine, list(failed)) == (True, ["error"])
        assert running.classify("good").status_code == 200
        assert httpx.get(f"{running.url}/readyz").status_code == 200


def chunks(number: int, size: int = 65_536) -> Iterator[bytes]:
    for _ in range(number):
        yield b" " * size


def test_bodies_over_the_limit_are_413_and_cost_no_memory(running: Served) -> None:
    before = running.worker.memory_info().rss
    problem(httpx.post(f"{running.url}/classify", content=b" " * 60_000_000, timeout=60), 413, "too_large")
    problem(httpx.post(f"{running.url}/classify", content=chunks(900), timeout=60), 413, "too_large")
    assert running.worker.memory_info().rss < before + 30e6
    assert running.classify("good").status_code == 200


def test_a_client_that_waits_for_permission_to_send_is_refused_first(running: Served) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    head = f"POST /classify HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99999999\r\nexpect: 100-continue\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_half_a_request_and_no_http_harm_nobody(running: Served) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    for start in (b"POST /classify HTTP/1.1\r\ncontent-length: 100\r\n\r\n{", b"\x16\x03\x01\x02\x00", b"GET"):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(start)
        assert running.classify("good").status_code == 200


@pytest.mark.slow
def test_a_full_queue_is_429(words: Path) -> None:
    with serving(words, "--max-queue-tokens", "20", "--max-batch-items", "1") as served, ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(served.classify, "slow slow good") for _ in range(12)]
        responses = [answer.result() for answer in answers]
        statuses = [response.status_code for response in responses]
        assert set(statuses) == {200, 429}
        for response in responses:
            if response.status_code == 429:
                problem(response, 429, "overloaded")
                assert int(response.headers["retry-after"]) >= 1
        assert served.classify("good").status_code == 200


@pytest.mark.slow
def test_it_is_live_at_once_and_ready_only_when_warm(words: Path, tmp_path: Path) -> None:
    """Polls a fixed port from the start; every answer must be one of: nobody listens, 503, and from then on 200."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            with contextlib.suppress(httpx.TransportError):
                ready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=0.5).status_code
                seen.append((ready, httpx.get(f"http://127.0.0.1:{port}/livez", timeout=0.5).status_code))
            time.sleep(0.002)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        with serving(words, "--port", str(port)) as served:
            assert served.url.endswith(f":{port}")
            done.set()
            poller.join()
    finally:
        done.set()
    statuses = [ready for ready, _ in seen]
    assert statuses == sorted(statuses, reverse=True), "503 until 200, and never back"
    assert set(statuses) <= {503, 200}
    assert {live for _, live in seen} <= {200}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("after_s", [0.9, 1.2, 1.5, 1.8, 2.4])
def test_a_signal_is_heard_at_every_moment_of_the_start(words: Path, after_s: float, number: int) -> None:
    command = [sys.executable, "-m", "robal", "serve", str(words), "--port", "0", "--threads", "1"]

    def listen_to_ctrl_c() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits deafness

    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, preexec_fn=listen_to_ctrl_c) as process:
        time.sleep(after_s)
        workers = psutil.Process(process.pid).children()
        process.send_signal(number)
        try:
            # 130 and -15: before the command had begun to serve
            assert process.wait(timeout=20) in (0, 130, -signal.SIGTERM)
        finally:
            process.kill()
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_stopping_finishes_what_was_accepted(words: Path, number: int) -> None:
    with serving(words, "--max-batch-items", "1") as served, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(served.classify, "slow slow slow slow") for _ in range(4)]
        deadline = time.monotonic() + 20
        while served.sample("robal_requests_in_progress") < 5 and time.monotonic() < deadline:
            time.sleep(0.01)  # four and the one that asks
        worker = served.worker
        code, out, err = served.stop(number)
        assert [answer.result().status_code for answer in answers] == [200] * 4
        assert (code, out, err) == (0, "", "")
        assert not worker.is_running()


@pytest.mark.slow
def test_a_second_signal_ends_at_once(words: Path) -> None:
    with serving(words) as served, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.classify, ["slow " * 14] * 100)
        while served.sample("robal_requests_in_progress") < 2:
            time.sleep(0.01)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        code, _, err = served.stop()
        assert code == 1
        assert err == "robal: the server was stopped before everything it had accepted was answered.\n"
        with pytest.raises(httpx.TransportError):
            answer.result()


@pytest.mark.slow
def test_a_drain_answers_on_while_readiness_says_no(words: Path) -> None:
    """B44: the load balancer hears of the stop before its requests do."""
    with serving(words, "--drain-s", "600") as served:
        served.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while httpx.get(f"{served.url}/readyz").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        problem(httpx.get(f"{served.url}/readyz"), 503, "unavailable")
        assert served.classify("good").status_code == 200
        code, _, err = served.stop()  # a second signal ends the drain, not what was accepted
        assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_new_connections_wait_for_it(words: Path) -> None:
    with serving(words) as served:
        for _ in range(2):
            before = served.worker
            before.kill()
            psutil.wait_procs([before], timeout=20)
            answer = served.classify("good")  # the listening socket is the supervisor's
            assert answer.status_code in (200, 503), "503: the new worker is loading the model"
            deadline = time.monotonic() + 30
            while httpx.get(f"{served.url}/readyz").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert served.classify("good").status_code == 200
            assert served.worker.pid != before.pid
        code, _, err = served.stop()
        assert (code, err) == (0, "")


@pytest.mark.slow
def test_killing_the_supervisor_does_not_leave_the_worker(words: Path) -> None:
    with serving(words) as served:
        worker = served.worker
        served.process.kill()
        served.process.wait()
        assert psutil.wait_procs([worker], timeout=20)[1] == []


def test_a_port_in_use_is_one_sentence_before_anything_starts(words: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} on 127.0.0.1 is in use" in refused(str(words), "--port", port)


@pytest.mark.parametrize(
    ("options", "words_of_sentence"),
    [
        (["--host", "no.such.host.invalid"], "no.such.host.invalid cannot be resolved"),
        (["--host", "203.0.113.1"], "--host 203.0.113.1 is not an address of this machine"),
        (["--precision", "int8"], "has no int8 graph; it has 'fp32'"),
        (["--max-batch-tokens", "15"], "--max-batch-tokens 15 is less than the 16 tokens"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(words: Path, options: list[str], words_of_sentence: str) -> None:
    assert words_of_sentence in refused(str(words), "--port", "0", *options)


def test_bundles_that_are_none_are_one_sentence(words: Path, tmp_path: Path) -> None:
    assert "is not a folder" in refused(str(tmp_path / "nothing"))
    edited = tmp_path / "edited"
    shutil.copytree(words, edited)
    with (edited / "model.onnx").open("ab") as file:
        file.write(b"\0")
    assert "model.onnx was changed after the export" in refused(str(edited))
    newer = tmp_path / "newer"
    shutil.copytree(words, newer)
    manifest = json.loads((newer / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    assert "has bundle format 99" in refused(str(newer))


def test_a_graph_that_cannot_be_loaded_is_a_failure_with_its_reason(words: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(words, broken)
    (broken / "model.onnx").write_bytes(b"not a graph")
    run = subprocess.run(
        [sys.executable, "-m", "robal", "serve", str(broken), "--port", "0", "--no-verify"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert "model.onnx cannot be loaded by onnxruntime" in run.stderr
    assert "the server process ended before it was ready" in run.stderr
    assert "Traceback" not in run.stderr
