"""The one table from error types to exit codes and HTTP statuses."""

import inspect

import pytest

from contract import errors
from contract.errors import OUTCOMES, Failure, Outcome, RobalError, UserError, listing, outcome

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, RobalError)]

EXPECTED = {
    "UserError": (2, 400),
    "UsageError": (2, 400),
    "DataError": (2, 400),
    "CheckpointError": (2, 400),
    "BundleError": (2, 400),
    "MissingExtra": (2, 400),
    "InvalidRequest": (2, 400),
    "Unauthorized": (2, 401),
    "TooLarge": (2, 413),
    "TextTooLong": (2, 422),
    "Failure": (1, 500),
    "GateFailed": (1, 500),
    "Overloaded": (1, 429),
    "Unavailable": (1, 503),
    "DeadlineExceeded": (1, 504),
    "Interrupted": (130, 500),
    "EngineFailure": (1, 500),
    "EngineStuck": (1, 500),
    "RobalError": (1, 500),
}


def test_every_type_is_expected() -> None:
    assert {kind.__name__ for kind in KINDS} == set(EXPECTED)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_type_has_its_outcome(kind: type[RobalError]) -> None:
    code, status = EXPECTED[kind.__name__]
    assert outcome(kind("message")) == Outcome(exit_code=code, http_status=status)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_type_keeps_its_message_and_says_what_it_is_for(kind: type[RobalError]) -> None:
    assert str(kind("the message.")) == "the message."
    assert kind.__doc__
    if kind is not RobalError:
        assert issubclass(kind, UserError) != issubclass(kind, Failure)
        assert issubclass(kind, ValueError) == issubclass(kind, UserError)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(), MemoryError(), KeyboardInterrupt()])
def test_what_is_not_ours_is_a_plain_failure(error: BaseException) -> None:
    assert outcome(error) == OUTCOMES[Failure]


def test_the_drawing_in_the_docstring_is_the_hierarchy() -> None:
    drawn = {word for line in (errors.__doc__ or "").splitlines() for word in line.split()[:3] if word in EXPECTED}
    assert drawn == set(EXPECTED)


@pytest.mark.parametrize(
    ("names", "limit", "text"),
    [
        ([], 10, ""),
        (["b", "a"], 10, "'a', 'b'"),
        (["c", "b", "a"], 2, "'a', 'b' and 1 more"),
        ([3, 1, 2], 3, "1, 2, 3"),
    ],
)
def test_names_are_listed_sorted_and_cut(names: list[object], limit: int, text: str) -> None:
    assert listing(names, limit) == text
