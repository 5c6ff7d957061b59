"""What one stretch of load is: users who wait for their answers (closed loop) or arrivals who do not (open loop)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_IN_FLIGHT = 256
"""Requests that the generator has open at once; what arrives beyond is counted as dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How one server is driven: ``users`` in a closed loop, or ``rate`` arrivals per second in an open one."""

    users: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    """Standard deviation of the gaps between arrivals over their mean: 0 even, 1 Poisson, above 1 bursts (gamma)."""
    trace: tuple[float, ...] = ()
    """Arrival times in seconds to replay, in place of ``rate``; from the start again where it is too short."""
    max_in_flight: int = MAX_IN_FLIGHT
    warmup_s: float
    seconds: float
    """Measured time, after the warm-up."""
    max_requests: int = 1_000_000
    offset: int = 0
    """Position in the traffic where this stretch begins."""
    processes: int = 1
    """Generator processes; each is one thread."""
    seed: int = 0
    """Of the arrivals."""

    def __post_init__(self) -> None:
        assert (self.users is not None) + (self.rate is not None or bool(self.trace)) == 1
        assert self.users is None or self.users >= self.processes

    @property
    def is_open(self) -> bool:
        """Whether arrivals come whether or not earlier ones are answered."""
        return self.users is None

    @property
    def total_s(self) -> float:
        """Warm-up and measured time."""
        return self.warmup_s + self.seconds

    @property
    def title(self) -> str:
        """Such as ``8 users`` or ``40 arrivals/s``."""
        if self.users is not None:
            return "1 user" if self.users == 1 else f"{self.users} users"
        return f"{self.intended_rate:.4g} arrivals/s"

    @property
    def intended_rate(self) -> float:
        """Arrivals per second of an open loop."""
        if self.rate is not None:
            return self.rate
        return len(self.trace) / self.lap_s

    @property
    def lap_s(self) -> float:
        """Length of the trace, with one mean gap after its last arrival."""
        return self.trace[-1] * len(self.trace) / (len(self.trace) - 1)

    def at(self, *, offset: int, seed: int) -> Load:
        """The same load at another place in the traffic and with other arrivals."""
        return replace(self, offset=offset, seed=seed)

    def facts(self) -> dict[str, Any]:
        """For a report."""
        if self.users is not None:
            return {"loop": "closed", "users": self.users}
        return {"loop": "open", "rate": self.intended_rate, "burstiness": None if self.trace else self.burstiness}


def schedule(load: Load) -> Floats:
    """Due times of an open loop's arrivals, in seconds from its start, ascending, up to warm-up plus measured time.

    Gaps are gamma distributed with mean 1 / rate and the burstiness as their coefficient of variation, which is
    Poisson at 1 and even at 0.
    """
    if load.trace:
        laps = int(load.total_s / load.lap_s) + 1
        due = np.concatenate([np.array(load.trace) + load.lap_s * number for number in range(laps)])
    else:
        assert load.rate is not None
        count = int(load.rate * load.total_s * (1 + load.burstiness) + 100 * (1 + load.burstiness) ** 2)
        if load.burstiness == 0:
            gaps = np.full(count, 1 / load.rate)
        else:
            shape = 1 / load.burstiness**2
            gaps = np.random.default_rng(load.seed).gamma(shape, 1 / (shape * load.rate), size=count)
        due = np.cumsum(gaps)
    return due[due < load.total_s][: load.max_requests]


def read_trace(text: str, *, name: str) -> tuple[float, ...]:
    """Arrival times from lines of seconds, which may begin anywhere and must not go back.

    Raises:
        UsageError: a line is not such a number, or there are fewer than two.
    """
    times: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            time_s = float(line)
        except ValueError:
            raise UsageError(f"{name}, line {number}: {line.strip()[:40]!r} is not a number of seconds.") from None
        if not np.isfinite(time_s) or (times and time_s < times[-1]):
            raise UsageError(f"{name}, line {number}: arrival times must be finite and must not go back.")
        times.append(time_s)
    if len(times) < 2 or times[-1] == times[0]:
        raise UsageError(f"{name} has {len(times)} arrival times; at least two different ones were expected.")
    return tuple(time_s - times[0] for time_s in times)
