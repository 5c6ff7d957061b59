"""What the numbers were measured on and with: without it they mean nothing a month later."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from contract.machine import processor

PACKAGES = ("robal", "onnxruntime", "bentoml", "tokenizers", "numpy", "locust", "gevent")


def describe_machine() -> dict[str, Any]:
    """Processor, cores that we may use, memory, system, settings that the servers inherit, versions that matter."""
    return {
        "processor": processor(),
        "cores_usable": usable_cores(),
        "cores_physical": psutil.cpu_count(logical=False),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "load_average_before": round(os.getloadavg()[0], 2),
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("ROBAL_")},
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }


def calibrate() -> float:
    """Milliseconds of a fixed piece of work, the best of three: what changes between two calls is the machine."""
    data = bytes(4_000_000)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        hashlib.sha256(data).digest()
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


def usable_cores() -> int:
    """Cores that this process may run on; containers often have fewer than the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
