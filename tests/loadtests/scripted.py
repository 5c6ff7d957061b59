"""Starting the scripted server the way the product starts a service."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from loadtests.subjects import Subject

SCRIPT = Path(__file__).with_name("scripted_server.py")


def scripted(**options: object) -> Callable[[int], list[str]]:
    """The command line of a scripted server for a port, with options such as ``delay_ms=20``."""

    def command(port: int) -> list[str]:
        words = [sys.executable, str(SCRIPT), "--port", str(port)]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            words += [flag] if value is True else [flag, str(value)]
        return words

    return command


def subject(name: str, *, shrink: int = 1, **options: object) -> Subject:
    """A service whose behaviour is known, with the face of a bundle."""
    return Subject(
        name=name,
        family="roberta",
        precision="fp32",
        parameters=124_645_632,
        unique_parameters=124_645_632 // shrink,
        size_bytes=498_600_000 // shrink,
        source=f"runs/{name}",
        sha256=name.encode().hex().ljust(64, "0")[:64],
        command=scripted(**options),
    )


def servers_alive() -> int:
    """How many scripted servers this process has as children (other tests may have left helpers of multiprocessing)."""
    alive = 0
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            alive += "scripted_server" in " ".join(process.cmdline())
    return alive
