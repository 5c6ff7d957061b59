"""An engine that raises, computes nonsense or hangs: what clients see, and that the service recovers."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from contract.encoding import EncodedText
from service.engine import Engine, Logits
from tests.service.inprocess import Client, ask, connect, engine_of, make_api, problem, sample, until


class Moody:
    """The real engine in a mood: fine, raising, or computing NaN."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.instances = engine.instances
        self.mood = "fine"

    def run(self, texts: Sequence[EncodedText]) -> Logits:
        if self.mood == "raising":
            raise MemoryError("secret detail of the engine")
        logits = self.engine.run(texts)
        return np.full_like(logits, np.nan) if self.mood == "nan" else logits

    def close(self) -> None:
        self.engine.close()


@pytest.mark.parametrize("mood", ["raising", "nan"])
def test_an_engine_failure_is_500_with_an_id_and_the_reason_only_in_the_log(
    words: Path, mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(make_api(words, Moody)) as client:
        engine = engine_of(client.api)
        assert client.get("/readyz").status_code == 200
        engine.mood = mood
        with caplog.at_level(logging.ERROR, logger="robal.service"):
            response = client.post("/classify", json={"inputs": "good"}, headers={"x-request-id": "find-me"})
        message = problem(response, 500, "internal_error")
        assert "secret" not in response.text
        assert message == "the service could not compute the answer; the log has the reason under this request id."
        assert "find-me" in caplog.text
        assert ("secret detail" in caplog.text) == (mood == "raising")
        problem(client.get("/readyz"), 503, "unavailable")
        assert client.get("/livez").status_code == 200
        engine.mood = "fine"
        assert client.get("/readyz").status_code == 200, "it tries whether the engine works again"
        assert client.post("/classify", json={"inputs": "good"}).status_code == 200
        assert sample(client.api, "robal_engine_failures_total") == 1


def test_a_poisonous_text_costs_only_itself_and_leaves_the_service_ready(
    words: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(make_api(words)) as client:
        alone = client.post("/classify", json={"inputs": ["good"]}).json()["results"][0]
        for poison in ("broken", "nan"):
            problem(client.post("/classify", json={"inputs": f"good {poison}"}), 500, "internal_error")
            inputs = ["good", f"good {poison}", "good"]
            answer = client.post("/classify", json={"inputs": inputs}, headers={"x-request-id": f"id-{poison}"})
            assert answer.status_code == 200
            assert f"request id-{poison}, inputs[1]: " in caplog.text
            first, failed, last = answer.json()["results"]
            assert first == last == alone
            message = "the service could not compute this text; the log has the reason."
            assert failed == {"error": {"type": "internal_error", "message": message}}
            assert client.get("/readyz").status_code == 200


class Hanging:
    """The real engine, whose calls do not come back until the test lets them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.instances = engine.instances
        self.hangs = False
        self.let_go = threading.Event()

    def run(self, texts: Sequence[EncodedText]) -> Logits:
        if self.hangs:
            self.let_go.wait(60)
        return self.engine.run(texts)

    def close(self) -> None:
        self.engine.close()


def test_an_engine_that_hangs_is_replaced_and_readiness_says_so(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Hanging, engine_timeout_s=0.3)
        classifier = api.state.classifier
        made = threading.Event()
        make = classifier._runner._make

        def slowly() -> Engine:
            assert made.wait(30)
            return make()

        classifier._runner._make = slowly
        async with connect(api) as client:
            assert (await client.post("/classify", json={"inputs": "good"})).status_code == 200
            engine_of(api).hangs = True
            stuck = await client.post("/classify", json={"inputs": ["good", "bad film"]})
            assert [list(result) for result in stuck.json()["results"]] == [["error"], ["error"]]
            assert "being replaced" in problem(await client.get("/readyz"), 503, "unavailable")
            waiting = ask(client, "good film")
            made.set()
            assert (await waiting).status_code == 200, "what was accepted meanwhile is answered by the new engine"
            assert (await client.get("/readyz")).status_code == 200
        engine_of(api).let_go.set()
        await classifier.close()

    asyncio.run(main())


def test_no_new_engine_is_not_ready_and_the_next_request_tries_again(words: Path) -> None:
    async def main() -> None:
        api = make_api(words, Hanging, engine_timeout_s=0.3)
        runner = api.state.classifier._runner
        make, runner._make = runner._make, lambda: 1 / 0
        async with connect(api) as client:
            engine_of(api).hangs = True
            problem(await client.post("/classify", json={"inputs": "good"}), 500, "internal_error")
            problem(await client.get("/readyz"), 503, "unavailable")
            await until(lambda: runner._replacing is None)
            problem(await client.get("/readyz"), 503, "unavailable")
            runner._make = make
            await until(lambda: runner._replacing is None)
            assert (await client.post("/classify", json={"inputs": "good"})).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
        engine_of(api).let_go.set()
        await api.state.classifier.close()

    asyncio.run(main())
