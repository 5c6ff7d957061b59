"""Every error a user can meet, and the one table from error type to exit code and HTTP status.

A message is one sentence or two that say which thing, what is wrong with it, what was expected and what to do.

    RobalError
    |- UserError (also ValueError)    the caller can mend it
    |  |- UsageError                  a flag or an argument
    |  |- DataError                   a data file, a row, a label
    |  |- CheckpointError             a model folder
    |  |- BundleError                 an exported bundle
    |  |- MissingExtra                an optional dependency is not installed
    |  |- InvalidRequest              a request that does not fit the schema
    |  |- Unauthorized                a request without a valid key
    |  |- TooLarge                    a request over a size limit
    |  `- TextTooLong                 a text over the token limit, with truncation off
    `- Failure (also RuntimeError)    the caller did nothing wrong
       |- GateFailed                  an export that did not pass its own checks
       |- Overloaded                  the queue is full
       |- Unavailable                 starting, stopping or broken
       |- DeadlineExceeded            the answer would have come too late
       |- Interrupted                 Ctrl-C
       `- EngineFailure               the model did not compute
          `- EngineStuck              and did not come back
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class RobalError(Exception):
    """Anything the product reports on purpose; the message is written for the person who reads it."""


class UserError(RobalError, ValueError):
    """The caller can mend it: the message says how."""


class UsageError(UserError):
    """A flag or an argument is wrong."""


class DataError(UserError):
    """A data file, a row or a label is wrong."""


class CheckpointError(UserError):
    """A model folder cannot be used as it is."""


class BundleError(UserError):
    """An exported bundle cannot be used as it is."""


class MissingExtra(UserError):
    """An optional dependency is not installed; the message contains the install line."""


class InvalidRequest(UserError):
    """A request does not fit the schema. ``field`` is the path of the offending value, such as ``inputs[3]``."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Unauthorized(UserError):
    """A request has no valid key."""


class TooLarge(InvalidRequest):
    """A request exceeds a limit on bytes, items or characters."""


class TextTooLong(InvalidRequest):
    """A text exceeds the token limit and truncation is off."""


class Failure(RobalError, RuntimeError):
    """The caller did nothing wrong."""


class GateFailed(Failure):
    """An export did not pass its own checks; nothing was written."""


class Overloaded(Failure):
    """The queue is full. ``retry_after_s`` is when another try makes sense."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(Failure):
    """The service is starting, stopping or broken."""


class DeadlineExceeded(Failure):
    """The answer would have come after the deadline."""


class Interrupted(Failure):
    """Ctrl-C; the message says what was kept and how to go on."""


class EngineFailure(Failure):
    """The model did not compute. Details belong in the log, not in an answer."""


class EngineStuck(EngineFailure):
    """A call of the engine did not come back in time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the outside world sees of an error: the exit code of a command, the status of an HTTP answer."""

    exit_code: int
    http_status: int


OUTCOMES: dict[type[BaseException], Outcome] = {
    UserError: Outcome(exit_code=2, http_status=400),
    Unauthorized: Outcome(exit_code=2, http_status=401),
    TooLarge: Outcome(exit_code=2, http_status=413),
    TextTooLong: Outcome(exit_code=2, http_status=422),
    Failure: Outcome(exit_code=1, http_status=500),
    Overloaded: Outcome(exit_code=1, http_status=429),
    Unavailable: Outcome(exit_code=1, http_status=503),
    DeadlineExceeded: Outcome(exit_code=1, http_status=504),
    Interrupted: Outcome(exit_code=130, http_status=500),  # 128 + SIGINT, as shells expect
}


def outcome(error: BaseException) -> Outcome:
    """The row of ``OUTCOMES`` for an error: that of its nearest listed ancestor, else a plain failure."""
    for kind in type(error).__mro__:
        if kind in OUTCOMES:
            return OUTCOMES[kind]
    return OUTCOMES[Failure]


def listing(names: Iterable[object], limit: int = 10) -> str:
    """Names for a message: sorted, quoted, cut after ``limit`` with a count of the rest."""
    ordered = sorted(repr(name) for name in names)
    shown = ", ".join(ordered[:limit])
    return f"{shown} and {len(ordered) - limit} more" if len(ordered) > limit else shown
