"""Everything a running service can be told, in one frozen object.

The command line makes it, the environment carries it to the worker process (each field is a variable, such as
``ROBAL_MAX_TEXTS``), and the worker reads it once, when it starts.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contract.errors import UsageError
from contract.manifest import Manifest
from service.logs import LogFormat

PREFIX = "ROBAL_"
DRAIN_SIGNAL = signal.SIGUSR1
"""From the supervising process to its worker: answer on, but say that you are not ready."""


def available_cpus() -> int:
    """Processors this process may use: its affinity and, in a container, the quota of its cgroup."""
    cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cpus = min(cpus, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2 here
        pass
    return cpus


class Settings(BaseModel):
    """Settings of one service process."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    bundle: Path
    """Folder made by `robal export`."""
    precision: str = "auto"
    """Which of the bundle's graphs to serve: fp32, int8, or auto, which takes int8 where its accuracy was checked."""
    provider: str | None = None
    """What computes: cpu, or openvino or cuda where such an onnxruntime is installed. Default: what `robal plan` found;
    else cpu."""
    threads: int | None = Field(None, ge=1)
    """Threads of one engine call. Default: what `robal plan` found; else the processors that this process may use,
    divided by --instances."""
    instances: int | None = Field(None, ge=1)
    """Engine calls that may run at once; they share the weights in memory. More than one answer more requests in the
    same time when many wait, and each of them later when few do. Default: what `robal plan` found; else one."""
    max_batch_tokens: int = Field(1024, ge=1)
    """Most tokens of one engine call; at least the model's longest text."""
    max_batch_items: int = Field(32, ge=1)
    """Most texts of one engine call."""
    max_queue_tokens: int = Field(65_536, ge=1)
    """Most tokens that wait for the engine; beyond that, requests are refused (429)."""
    max_texts: int = Field(1024, ge=1)
    """Most texts of one request (413)."""
    max_explain_parts: int = Field(64, ge=1)
    """Most parts of a text that /explain leaves out one after the other; words of longer texts are grouped."""
    max_chars: int = Field(1_000_000, ge=1)
    """Most characters of one text, or of one side of a pair (413)."""
    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1)
    """Most bytes of a request body (413)."""
    max_requests: int = Field(256, ge=1)
    """Most requests in progress; more are refused before their body is read (429)."""
    timeout_s: float = Field(30.0, gt=0)
    """Longest time to answer a request (504)."""
    drain_s: float = Field(0.0, ge=0)
    """Time between being asked to stop and stopping in which requests are still answered and /readyz says 503, so that
    a load balancer can look elsewhere first; a second signal ends it."""
    engine_timeout_s: float = Field(30.0, gt=0)
    """Longest time of one engine call; after it the engine counts as stuck and is replaced by a new one."""
    api_keys: Path | None = None
    """File with the sha256 of each key that may ask, one a line; without it, everybody may (401)."""
    log_format: LogFormat = "text"
    """Lines of the log: text for people, json for machines. No text of a request is logged."""
    log_requests: bool = False
    """Log a line for each request: its id, route, status and time."""
    verify: bool = True
    """Compare the sha256 of the bundle's files before serving."""

    def layout(self, cpus: int) -> tuple[int, int]:
        """(threads, instances) on a machine of so many processors."""
        instances = self.instances or 1
        return self.threads or max(1, cpus // instances), instances

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Settings from variables named ``ROBAL_`` and a field's name in capitals.

        Raises:
            UsageError: a variable is missing or has a value that does not fit.
        """
        names = {PREFIX + name.upper(): name for name in cls.model_fields}
        values = {name: environment[variable] for variable, name in names.items() if variable in environment}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise UsageError(
                f"{PREFIX}{name.upper()}={values.get(name, '')}: {first['msg'].lower()}; "
                "start the service with `robal serve BUNDLE`, whose --help explains each setting."
            ) from None

    def to_environment(self) -> dict[str, str]:
        """The variables that ``from_environment`` reads back; unset fields are left out."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {PREFIX + name.upper(): str(value) for name, value in values.items()}

    def check(self, manifest: Manifest) -> None:
        """Raise UsageError or BundleError if the bundle cannot be served with these settings."""
        manifest.graph(manifest.resolve(self.precision))
        for name, value in (("batch", self.max_batch_tokens), ("queue", self.max_queue_tokens)):
            if value < manifest.max_length:
                raise UsageError(
                    f"--max-{name}-tokens {value} is less than the {manifest.max_length} tokens that one text of "
                    f"{manifest.name!r} may have; give at least that."
                )
