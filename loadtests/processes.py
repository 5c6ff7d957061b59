"""Child processes: what they inherit, how they end, and what their log said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 10.0
LOG_LINES = 15


def start(
    command: list[str],
    *,
    work: Path,
    log: Path,
    settings: dict[str, str] | None = None,
    cores: tuple[int, ...] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child whose output goes to ``log``.

    It leads a session of its own: Ctrl-C in the terminal reaches us, and we end the child in order. It inherits our
    environment without a stranger's Locust settings, and can import this checkout. ``cores`` are those it may run on.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCUST_", "ROBAL_LOADTEST_"))}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    inherited = {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(settings or {})}
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            cwd=work,
            env=inherited,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if cores is not None:
        psutil.Process(child.pid).cpu_affinity(list(cores))  # its children inherit it
    return child


def stop(child: subprocess.Popen[bytes], patience_s: float = PATIENCE_S) -> None:
    """End a child politely, then kill what is left of the processes that it started; a second Ctrl-C kills at once."""
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = psutil.Process(child.pid).children(recursive=True)
    try:
        if child.poll() is None:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # it leads its group, so the group has its id
        for process in tree:  # those that left the group
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        child.wait()
    psutil.wait_procs(tree, timeout=1.0)  # where nobody reaps orphans, dead ones stay visible


def log_tail(log: Path) -> str:
    """The end of a log, to stand after the sentence of an error."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\nThe end of its log:\n" + "\n".join(lines[-LOG_LINES:]) if lines else " Its log is empty."
