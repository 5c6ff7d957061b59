import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from contract.errors import Failure
from loadtests import processes, servers
from loadtests.servers import serve_command, serving
from tests.loadtests.scripted import scripted, servers_alive


def test_a_server_is_ready_when_it_says_so_and_gone_after_the_block(tmp_path: Path) -> None:
    with serving(scripted(ready_after_s=0.5), name="x", work=tmp_path) as server:
        assert server.start_s >= 0.5
        usage = server.usage(proportional=True)
        assert 1_000_000 < usage.rss_bytes < 1_000_000_000
        assert usage.pss_bytes is None or 0 < usage.pss_bytes <= usage.rss_bytes
        assert usage.cpu_s > 0
        assert server.peak_rss_bytes >= usage.rss_bytes
        with socket.create_connection(("127.0.0.1", server.port)):
            pass
        pid = server.child.pid
    assert not psutil.pid_exists(pid)


def test_waiting_is_told(tmp_path: Path) -> None:
    ticks = []
    with serving(scripted(ready_after_s=0.3), name="x", work=tmp_path, on_tick=lambda: ticks.append(1)):
        pass
    assert ticks


def test_a_server_that_ends_at_once_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    started = time.monotonic()
    with (
        pytest.raises(Failure, match=r"(?s)server of albert ended by itself \(exit code 3\).*weights are missing"),
        serving(scripted(die="weights are missing"), name="albert", work=tmp_path),
    ):
        pass
    assert time.monotonic() - started < servers.READY_S / 2


def test_a_server_that_never_gets_ready_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "READY_S", 1.0)
    with (
        pytest.raises(Failure, match=r"(?s)server of albert was not ready within 1 s.*listening"),
        serving(scripted(ready_after_s=60), name="albert", work=tmp_path),
    ):
        pass
    assert servers_alive() == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_happens_the_server_is_stopped(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), serving(scripted(), name="x", work=tmp_path) as server:
        raise error
    assert not psutil.pid_exists(server.child.pid)


def test_a_server_that_dies_later_is_noticed(tmp_path: Path) -> None:
    with serving(scripted(), name="x", work=tmp_path) as server:
        server.child.kill()
        server.child.wait()
        with pytest.raises(Failure, match="ended by itself"):
            server.usage()


def test_a_deaf_server_and_what_it_started_are_killed(tmp_path: Path) -> None:
    """A parent that ignores the polite signal, with a child in another session."""
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)\n"
        "print('up', flush=True); time.sleep(100)\n"
    )
    log = tmp_path / "log"
    child = processes.start([sys.executable, "-c", code], work=tmp_path, log=log)
    while "up" not in log.read_text():
        time.sleep(0.02)
    tree = psutil.Process(child.pid).children(recursive=True)
    assert len(tree) == 1
    processes.stop(child, patience_s=0.2)
    assert child.returncode == -9
    assert not tree[0].is_running() or tree[0].status() == psutil.STATUS_ZOMBIE


def test_a_second_interrupt_kills_at_once(tmp_path: Path) -> None:
    """The server is deaf and patience is long, but nobody who presses Ctrl-C twice wants to wait."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(100)"
    )
    log = tmp_path / "log"
    child = processes.start([sys.executable, "-c", code], work=tmp_path, log=log)
    while "up" not in log.read_text():
        time.sleep(0.02)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        processes.stop(child, patience_s=60)
    assert child.returncode == -9


def test_strangers_settings_do_not_reach_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUST_USERS", "500")
    monkeypatch.setenv("ROBAL_LOADTEST_MAX_REQUESTS", "1")
    log = tmp_path / "log"
    code = "import os, loadtests; print([k for k in os.environ if k.startswith(('LOCUST_', 'ROBAL_LOADTEST_'))])"
    child = processes.start([sys.executable, "-c", code], work=tmp_path, log=log, settings={"ROBAL_LOADTEST_A": "1"})
    assert child.wait(30) == 0
    assert log.read_text() == "['ROBAL_LOADTEST_A']\n"


def test_the_product_serves_on_loopback_only() -> None:
    command = serve_command(Path("/b"), port=1234, threads=2, precision="fp32")
    assert command[:5] == [sys.executable, "-m", "robal", "serve", "/b"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--threads") + 1] == "2"
