"""Whatever the traffic: nothing lost, nothing mixed up, no budget exceeded, nobody pays for another."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.encoding import EncodedText
from contract.errors import EngineFailure, RobalError
from tests.service.fakes import BROKEN, NAN, FakeEngine, Ledger, fake_scheduler, run_virtually, text, tokens


@st.composite
def traffic(draw: st.DrawFn) -> list[tuple[float, float | None, float | None, list[tuple[int, int | None]]]]:
    """Requests: (arrival, patience or None, deadline or None, [(length, special id or None) of each text])."""
    special = st.sampled_from([None] * 12 + [BROKEN, NAN])
    texts = st.lists(st.tuples(st.integers(1, 40), special), min_size=1, max_size=6)
    limit = st.none() | st.floats(0, 5)
    return draw(st.lists(st.tuples(st.floats(0, 10), limit, limit, texts), max_size=25))


@settings(deadline=None, max_examples=50)
@given(
    requests=traffic(),
    batch_tokens=st.integers(20, 200),
    batch_items=st.integers(1, 9),
    queue_tokens=st.integers(40, 600),
    instances=st.integers(1, 3),
    overhead=st.sampled_from([0.0, 0.5]),
)
def test_nothing_is_lost_mixed_up_or_over_budget(
    requests: list[tuple[float, float | None, float | None, list[tuple[int, int | None]]]],
    batch_tokens: int,
    batch_items: int,
    queue_tokens: int,
    instances: int,
    overhead: float,
) -> None:
    async def main() -> None:
        engine, ledger = FakeEngine(overhead=overhead, per_token=overhead / 50), Ledger()
        scheduler = fake_scheduler(
            engine,
            batch_tokens=batch_tokens,
            batch_items=batch_items,
            queue_tokens=queue_tokens,
            instances=instances,
            ledger=ledger,
        )
        number = 0
        tasks = []
        deadlines: dict[int, float] = {}

        async def client(
            arrival: float, patience: float | None, limit: float | None, encoded: list[EncodedText]
        ) -> str:
            await asyncio.sleep(arrival)
            if limit is not None:
                now = asyncio.get_running_loop().time()
                deadlines.update((int(item.input_ids[0]), now + limit) for item in encoded)
            try:
                computed = await asyncio.wait_for(scheduler.submit(encoded, timeout_s=limit), patience)
            except TimeoutError:
                return "gone"
            except RobalError as error:
                return type(error).__name__
            for row, item in zip(computed.rows, encoded, strict=True):
                if {BROKEN, NAN} & set(item.input_ids):
                    assert isinstance(row, EngineFailure), "a text that cannot be computed has no logits"
                else:
                    assert row.tolist() == [item.input_ids[0], len(item.input_ids)], "its own logits, in order"
            assert computed.queue_s >= 0
            assert computed.engine_s >= overhead
            return "answered"

        for arrival, patience, limit, texts in requests:
            encoded = []
            for length, special in texts:
                number += 1
                encoded.append(text(length + 1, number, special))
            tasks.append((encoded, asyncio.create_task(client(arrival, patience, limit, encoded))))
        outcomes = [(encoded, await task) for encoded, task in tasks]
        await scheduler.close()

        for encoded, outcome in outcomes:
            assert outcome in {"answered", "gone", "Overloaded", "TooLarge", "DeadlineExceeded"}
            assert outcome != "TooLarge" or tokens(encoded) > queue_tokens
            assert outcome != "DeadlineExceeded" or int(encoded[0].input_ids[0]) in deadlines
        assert engine.most_running <= instances
        for batch, started in zip(engine.batches, engine.started, strict=True):
            assert len(batch) <= batch_items
            assert tokens(batch) <= batch_tokens or len(batch) == 1
            for item in batch:
                assert started <= deadlines.get(int(item.input_ids[0]), started), "too late, and computed all the same"
        assert min(ledger.queue) >= 0
        assert max(ledger.queue) <= queue_tokens
        assert scheduler.queued_tokens == ledger.queue[-1] == 0
        computed = Counter(int(item.input_ids[0]) for batch in engine.batches for item in batch)
        refused = {
            int(item.input_ids[0]) for encoded, o in outcomes if o in ("Overloaded", "TooLarge") for item in encoded
        }
        assert not refused & set(computed), "what was refused is never computed"
        assert max(computed.values(), default=0) <= 1 + batch_items.bit_length(), "once, and in each half of a failure"
        for encoded, outcome in outcomes:
            if outcome == "answered":
                assert all(int(item.input_ids[0]) in computed for item in encoded)

    run_virtually(main)
