"""What surrounds every route: deadlines, refusals, broken engines, clients who leave, bodies without an end."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from contract.encoding import EncodedText
from service.engine import Engine, Logits
from tests.service.inprocess import Client, ask, connect, engine_of, make_api, problem, sample, until


class Gate:
    """The real engine behind a gate that a test opens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.instances = engine.instances
        self.open = threading.Event()
        self.batches: list[int] = []

    def run(self, texts: Sequence[EncodedText]) -> Logits:
        self.batches.append(len(texts))
        assert self.open.wait(30), "the test never opened the gate"
        return self.engine.run(texts)

    def close(self) -> None:
        self.engine.close()


def test_concurrent_requests_share_batches(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate)
        async with connect(api) as client:
            first = ask(client, "good")
            await until(lambda: engine_of(api).batches == [1])
            rest = [ask(client, text) for text in ("bad film", "good film", "the film", "bad bad")]
            await until(lambda: sample(api, "robal_queue_tokens") == 16)
            engine_of(api).open.set()
            answers = await asyncio.gather(first, *rest)
        assert [answer.status_code for answer in answers] == [200] * 5
        assert engine_of(api).batches == [1, 4]
        assert sample(api, "robal_batch_items_count") == 2
        assert sample(api, "robal_batch_items_sum") == 5
        assert sample(api, "robal_engine_positions_total", kind="real") == 19
        assert sample(api, "robal_engine_positions_total", kind="padding") == 0
        await api.state.classifier.close()

    asyncio.run(main())


def test_a_full_queue_is_429_with_retry_after_and_empties_again(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate, max_queue_tokens=16)
        async with connect(api) as client:
            accepted = [ask(client, "good")]
            await until(lambda: engine_of(api).batches)
            accepted += [ask(client, ["good", "good", "bad"])]
            await until(lambda: sample(api, "robal_queue_tokens") == 9)
            refused = await client.post("/classify", json={"inputs": ["good", "bad", "film"]})
            problem(refused, 429, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            engine_of(api).open.set()
            assert [(await task).status_code for task in accepted] == [200, 200]
            assert (await client.post("/classify", json={"inputs": ["good", "bad", "film"]})).status_code == 200
        await api.state.classifier.close()

    asyncio.run(main())


def test_too_many_requests_in_progress_are_429_before_their_body_is_read(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate, max_requests=2)
        async with connect(api) as client:
            accepted = [ask(client, "good") for _ in range(2)]
            await until(lambda: sample(api, "robal_requests_in_progress") == 2)
            refused = await client.post("/classify", content=b"never parsed")
            problem(refused, 429, "overloaded")
            assert (await client.get("/livez")).status_code == 200, "probes are never refused"
            engine_of(api).open.set()
            assert [(await task).status_code for task in accepted] == [200, 200]
        await api.state.classifier.close()

    asyncio.run(main())


def test_no_answer_in_time_is_504_and_the_next_request_works(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate, timeout_s=0.3)
        async with connect(api) as client:
            problem(await client.post("/classify", json={"inputs": "good"}), 504, "deadline_exceeded")
            api.state.settings = api.state.settings.model_copy(update={"timeout_s": 30})
            engine_of(api).open.set()
            assert (await client.post("/classify", json={"inputs": "good"})).status_code == 200
        assert sample(api, "robal_queue_tokens") == 0
        await api.state.classifier.close()

    asyncio.run(main())


def test_a_request_whose_own_time_is_up_is_504_and_not_computed(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate)
        async with connect(api) as client:
            running = ask(client, "good")
            await until(lambda: engine_of(api).batches == [1])
            hurried = client.post("/classify", json={"inputs": "bad film", "timeout_ms": 50, "priority": "high"})
            hurried_task = asyncio.create_task(hurried)
            await asyncio.sleep(0.2)
            engine_of(api).open.set()
            problem(await hurried_task, 504, "deadline_exceeded")
            assert (await running).status_code == 200
        assert engine_of(api).batches == [1]
        assert sample(api, "robal_deadline_misses_total") == 1
        await api.state.classifier.close()

    asyncio.run(main())


def test_a_poisonous_text_does_not_harm_requests_in_the_same_batch(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate)
        async with connect(api) as client:
            first = ask(client, "good")
            await until(lambda: engine_of(api).batches)
            rest = [ask(client, text) for text in ("good film", "good broken", "good nan", "bad film")]
            await until(lambda: sample(api, "robal_queue_tokens") == 16)
            engine_of(api).open.set()
            answers = await asyncio.gather(first, *rest)
            assert [answer.status_code for answer in answers] == [200, 200, 500, 500, 200]
            for position, text in ((1, "good film"), (4, "bad film")):
                alone = (await client.post("/classify", json={"inputs": text})).json()["results"]
                assert answers[position].json()["results"] == alone
        assert engine_of(api).batches[:2] == [1, 4]
        await api.state.classifier.close()

    asyncio.run(main())


def test_starting_and_stopping_are_503(words: Path) -> None:
    api = make_api(words)
    classifier, api.state.classifier = api.state.classifier, None
    with Client(api) as client:
        for response in (
            client.get("/readyz"),
            client.get("/info"),
            client.post("/classify", json={"inputs": "a"}),
        ):
            assert "starting" in problem(response, 503, "unavailable")
        assert client.get("/livez").status_code == 200
        assert client.get("/metrics").status_code == 200
        api.state.classifier = classifier
        assert client.get("/readyz").status_code == 200
        client._runner.run(classifier.close())
        for response in (client.get("/readyz"), client.post("/classify", json={"inputs": "a"})):
            assert "stopping" in problem(response, 503, "unavailable")
        assert client.get("/livez").status_code == 200
        api.state.classifier = None


class Raw:
    """One request at the level of ASGI, message by message."""

    def __init__(self, api: FastAPI, messages: list[dict[str, Any]], headers: list[tuple[bytes, bytes]]) -> None:
        self.messages = messages
        self.received = 0
        self.sent: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/classify",
            "raw_path": b"/classify",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": headers,
            "client": None,
            "server": None,
        }
        self.task = asyncio.create_task(api(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        if self.received < len(self.messages):
            self.received += 1
            return self.messages[self.received - 1]
        await self.closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_pieces_is_joined_and_one_over_the_limit_is_refused_on_the_way(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, max_body_bytes=100)
        fine = Raw(api, [part(b'{"inp'), part(b'uts": '), part(b'"good"}', more=False)], [])
        await fine.task
        assert fine.status == 200

        long = Raw(api, [part(b"x" * 60), part(b"x" * 60), part(b"x" * 60), part(b"", more=False)], [])
        await long.task
        assert long.status == 413
        assert (b"connection", b"close") in long.sent[0]["headers"]
        assert long.received == 4, "the rest is read and thrown away"
        assert [message.get("more_body", False) for message in long.sent[1:]] == [True, False]

    asyncio.run(main())


def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, max_body_bytes=100)
        request = Raw(api, [part(b"x" * 50, more=False)], [(b"content-length", b"60000000")])
        await until(lambda: len(request.sent) >= 2)
        assert request.status == 413
        assert request.sent[1]["body"].startswith(b'{"error":')
        await request.task

    asyncio.run(main())


@pytest.mark.parametrize("length", [b"-1", b"many", b"0x10", "²".encode()])
def test_a_silly_content_length_is_not_a_500(words: Path, length: bytes) -> None:
    async def main() -> None:
        request = Raw(make_api(words), [part(b'{"inputs": "a"}', more=False)], [(b"content-length", length)])
        await request.task
        assert request.status == 200

    asyncio.run(main())


def test_a_body_that_never_ends_is_504(words: Path) -> None:
    async def main() -> None:
        request = Raw(make_api(words, timeout_s=0.2), [part(b'{"inputs')], [])
        await until(lambda: request.status is not None)
        assert request.status == 504
        request.closed.set()
        await request.task

    asyncio.run(main())


def test_work_for_a_client_who_has_left_is_dropped(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Gate)
        body = [part(b'{"inputs": ["good film", "bad film"]}', more=False)]
        running = Raw(api, [part(b'{"inputs": "good"}', more=False)], [])
        await until(lambda: engine_of(api).batches)
        leaving, staying = Raw(api, body, []), Raw(api, body, [])
        await until(lambda: sample(api, "robal_queue_tokens") == 16)
        leaving.closed.set()
        await until(lambda: sample(api, "robal_queue_tokens") == 8)
        engine_of(api).open.set()
        await asyncio.gather(running.task, leaving.task, staying.task)
        assert (running.status, leaving.status, staying.status) == (200, None, 200)
        assert engine_of(api).batches == [1, 2]
        assert sample(api, "robal_requests_total", endpoint="/classify", status="499") == 1
        await api.state.classifier.close()

    asyncio.run(main())


def test_a_client_who_leaves_while_sending_is_not_an_error(words: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        request = Raw(make_api(words), [part(b'{"inputs'), {"type": "http.disconnect"}], [])
        await request.task
        assert request.sent == []

    asyncio.run(main())
    assert not caplog.records


def test_a_scanner_makes_no_new_series(words: Path) -> None:
    with Client(make_api(words)) as client:
        client.get("/nope")
        client.get("/metrics")
        before = client.get("/metrics").text.count("\n")
        for number in range(50):
            client.get(f"/admin/{number}.php")
            client.request("PROPFIND", f"/{number}")
        assert client.get("/metrics").text.count("\n") == before
        assert sample(client.api, "robal_requests_total", endpoint="other", status="404") == 101


def test_requests_are_counted_by_endpoint_and_status(words: Path) -> None:
    with Client(make_api(words)) as client:
        client.post("/classify", json={"inputs": ["good", "bad film"]})
        client.post("/classify", json={"inputs": 5})
        for path in ("/", "/info", "/readyz", "/docs", "/openapi.json"):
            client.get(path)
            assert sample(client.api, "robal_requests_total", endpoint=path, status="200") == 1, path
        assert sample(client.api, "robal_requests_total", endpoint="/classify", status="200") == 1
        assert sample(client.api, "robal_requests_total", endpoint="/classify", status="400") == 1
        assert sample(client.api, "robal_texts_total") == 2
        assert sample(client.api, "robal_tokens_total") == 7
        assert sample(client.api, "robal_requests_in_progress") == 0
        text = client.get("/metrics").text
        for name in (
            "process_resident_memory_bytes",
            "robal_stage_seconds_bucket",
            "robal_model",
            "robal_queue_tokens",
        ):
            assert name in text
