"""The log: a line per event, JSON for machines, and never a text."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.logs import configure_logging
from tests.service.inprocess import Client, make_api


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("robal")
    before = root.handlers, root.level, root.propagate
    yield
    root.handlers, root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_requests_are_json_lines_without_their_texts(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    with Client(make_api(words, log_requests=True)) as client:
        client.post("/classify", json={"inputs": "good film"}, headers={"x-request-id": "one"})
        client.post("/classify", json={"inputs": "good nan"}, headers={"x-request-id": "two"})
        client.get("/a secret path", headers={"x-request-id": "three"})
    log = capsys.readouterr().err
    assert "film" not in log
    assert "secret" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    seen = [(line["request_id"], line["route"], line["status"]) for line in lines if "request_id" in line]
    assert seen == [("one", "/classify", 200), ("two", "/classify", 500), ("three", "other", 404)]
    assert all({"time", "level", "message", "ms", "method"} <= line.keys() for line in lines if "request_id" in line)
    (failure,) = [line for line in lines if line["level"] == "error"]
    assert "two" in failure["message"]


def test_a_traceback_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    try:
        raise MemoryError("no room")
    except MemoryError:
        logging.getLogger("robal.service").exception("it broke")
    (line,) = capsys.readouterr().err.splitlines()
    assert "MemoryError: no room" in json.loads(line)["exception"]


def test_people_get_a_readable_line_and_requests_only_on_demand(
    words: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("text")
    for asked in (False, True):
        with Client(make_api(words, log_requests=asked)) as client:
            client.get("/livez", headers={"x-request-id": "abc"})
        assert ("INFO request abc GET /livez 200 " in capsys.readouterr().err) == asked
