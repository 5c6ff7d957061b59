"""The scheduler with a fake engine and a fake clock."""

import asyncio

import numpy as np
import pytest

from contract.encoding import EncodedText
from contract.errors import DeadlineExceeded, EngineFailure, Overloaded, TooLarge, Unavailable
from service.scheduler import Computed
from tests.service.fakes import BROKEN, NAN, FakeEngine, Ledger, fake_scheduler, run_virtually, text


def numbers(logits: np.ndarray) -> list[int]:
    return [int(row[0]) for row in logits]


def test_an_idle_engine_starts_at_once() -> None:
    async def main() -> None:
        engine = FakeEngine(overhead=1.0, per_token=0.1)
        scheduler = fake_scheduler(engine)
        computed = await scheduler.submit([text(5, 42)])
        assert asyncio.get_running_loop().time() == pytest.approx(1.5)
        assert computed.queue_s == 0
        assert computed.engine_s == pytest.approx(1.5)
        assert numbers(computed.logits) == [42]

    run_virtually(main)


def test_what_arrives_while_the_engine_works_shares_the_next_batch() -> None:
    async def main() -> None:
        engine = FakeEngine()
        scheduler = fake_scheduler(engine)
        answers = await asyncio.gather(*(scheduler.submit([text(5, number)]) for number in range(6)))
        assert [numbers(answer.logits) for answer in answers] == [[number] for number in range(6)]
        assert [len(batch) for batch in engine.batches] == [6], "same tick: nothing has started yet"
        first = asyncio.create_task(scheduler.submit([text(5)]))
        await asyncio.sleep(0.1)
        rest = [asyncio.create_task(scheduler.submit([text(5, number)])) for number in (1, 2, 3)]
        await asyncio.gather(first, *rest)
        assert [len(batch) for batch in engine.batches[1:]] == [1, 3]
        assert rest[0].result().queue_s == pytest.approx(1.05 - 0.1)

    run_virtually(main)


def test_a_text_that_arrives_in_the_moment_the_worker_ends_is_computed() -> None:
    async def main() -> None:
        late: list[asyncio.Task[Computed]] = []

        async def engine(batch: list[EncodedText]) -> np.ndarray:
            if not late:  # its first step runs right after the last one of the worker
                late.append(asyncio.create_task(scheduler.submit([text(5, 2)])))
            return np.array([[item.input_ids[0]] for item in batch], np.float32)

        scheduler = fake_scheduler(engine)
        assert numbers((await scheduler.submit([text(5, 1)])).logits) == [1]
        assert numbers((await late[0]).logits) == [2]

    run_virtually(main)


def test_a_batch_is_filled_in_order_up_to_the_budget_of_tokens() -> None:
    async def main() -> None:
        engine = FakeEngine()
        scheduler = fake_scheduler(engine, batch_tokens=100, batch_items=4)
        lengths = [60, 30, 20, 150, 40, 10, 10, 10, 10]
        await scheduler.submit([text(length, number) for number, length in enumerate(lengths)])
        found = [[len(item.input_ids) for item in batch] for batch in engine.batches]
        assert found == [[60, 30], [20], [150], [40, 10, 10, 10], [10]], "a text longer than the budget goes alone"

    run_virtually(main)


def test_a_lone_text_does_not_wait_for_somebody_elses_thousand() -> None:
    async def main() -> None:
        engine = FakeEngine(overhead=0, per_token=0.01)
        scheduler = fake_scheduler(engine, queue_tokens=100_000)
        many = asyncio.create_task(scheduler.submit([text(10, number) for number in range(1000)]))
        await asyncio.sleep(0.1)
        lone = await scheduler.submit([text(10, 5000)])
        assert lone.queue_s < 2 * 0.64, "at most the batch in flight and its own"
        await many
        assert [int(item.input_ids[0]) for batch in engine.batches for item in batch if item.input_ids[0] < 5000] == [
            *range(1000)
        ], "texts of one request are computed in order"

    run_virtually(main)


def test_nobody_starves_however_many_arrive_later() -> None:
    async def main() -> None:
        engine = FakeEngine(overhead=0, per_token=0.01)
        scheduler = fake_scheduler(engine, queue_tokens=100_000)
        many = asyncio.create_task(scheduler.submit([text(60, number) for number in range(4)]))
        singles = []
        for _ in range(1000):  # as much as the engine can do, for twenty times as long as the list needs
            singles.append(asyncio.create_task(scheduler.submit([text(5)])))
            await asyncio.sleep(0.05)
            if many.done():
                break
        assert many.done()
        await asyncio.gather(*singles)

    run_virtually(main)


def test_a_larger_weight_is_a_larger_share() -> None:
    async def main() -> None:
        engine = FakeEngine(overhead=0)
        scheduler = fake_scheduler(engine, batch_items=1, queue_tokens=10_000)
        running = asyncio.create_task(scheduler.submit([text(5)]))
        await asyncio.sleep(0.01)
        low = asyncio.create_task(scheduler.submit([text(10, 1)] * 8, weight=1))
        high = asyncio.create_task(scheduler.submit([text(10, 2)] * 8, weight=4))
        await asyncio.gather(running, low, high)
        order = [int(batch[0].input_ids[0]) for batch in engine.batches[1:]]
        assert order[:5].count(2) == 4
        assert 1 in order[:6], "but not everything"

    run_virtually(main)


def test_instances_work_side_by_side_and_share_what_waits() -> None:
    async def main() -> None:
        engine = FakeEngine(overhead=1, per_token=0)
        scheduler = fake_scheduler(engine, instances=2, batch_tokens=1000, batch_items=100)
        computed = await scheduler.submit([text(50, number) for number in range(8)])
        assert [len(batch) for batch in engine.batches] == [4, 4]
        assert engine.most_running == 2
        assert asyncio.get_running_loop().time() == pytest.approx(1)
        assert computed.engine_s == pytest.approx(1), "time in the engine, not the sum over instances"
        await scheduler.submit([text(5, number) for number in range(4)])
        assert [len(batch) for batch in engine.batches[2:]] == [4], "too little to divide"

    run_virtually(main)


def test_a_request_that_cannot_be_in_time_is_refused_when_it_arrives() -> None:
    async def main() -> None:
        engine, ledger = FakeEngine(overhead=0.5, per_token=0.1), Ledger()
        scheduler = fake_scheduler(engine, ledger=ledger)
        for length in (10, 20):  # so that the cost is known: 0.5 s a call and 0.1 s a token
            await scheduler.submit([text(length)])
        with pytest.raises(DeadlineExceeded, match="about 1500 ms"):
            await scheduler.submit([text(10)], timeout_s=1.4)
        assert asyncio.get_running_loop().time() == pytest.approx(1.5 + 2.5), "at once"
        assert numbers((await scheduler.submit([text(10, 4)], timeout_s=1.6)).logits) == [4]
        assert len(engine.batches) == 3
        assert ledger.missed == 1

    run_virtually(main)


def test_a_request_whose_time_passes_in_the_queue_is_not_computed() -> None:
    async def main() -> None:
        engine, ledger = FakeEngine(overhead=5), Ledger()  # nothing is known of its cost yet
        scheduler = fake_scheduler(engine, ledger=ledger)
        running = asyncio.create_task(scheduler.submit([text(5)]))
        await asyncio.sleep(0.1)
        with pytest.raises(DeadlineExceeded, match="passed before its answer"):
            await scheduler.submit([text(5), text(5)], timeout_s=2)
        await running
        await scheduler.close()
        assert len(engine.batches) == 1
        assert ledger.missed == 2
        assert scheduler.queued_tokens == 0

    run_virtually(main)


def test_one_broken_text_costs_only_itself() -> None:
    async def main() -> None:
        engine, ledger = FakeEngine(), Ledger()
        scheduler = fake_scheduler(engine, ledger=ledger)
        alone, several, last = await asyncio.gather(
            scheduler.submit([text(5, 1)]),
            scheduler.submit([text(5, 2, BROKEN), text(5, 3, NAN), text(5, 4)]),
            scheduler.submit([text(5, 5)]),
        )
        assert (numbers(alone.logits), numbers(last.logits)) == ([1], [5])
        broken, nan, fine = several.rows
        assert isinstance(broken, EngineFailure)
        assert isinstance(broken.__cause__, RuntimeError)
        assert isinstance(nan, EngineFailure)
        assert fine.tolist() == [4, 5], "the neighbour in the same request has its answer"  # type: ignore[union-attr]
        with pytest.raises(EngineFailure, match="RuntimeError"):
            several.logits  # noqa: B018
        assert [len(batch) for batch in engine.batches] == [5, 2, 1, 1, 3]
        assert ledger.failures == 4  # the batch, its first half, the broken text alone, the text with NaN
        assert numbers((await scheduler.submit([text(5, 9)])).logits) == [9], "and the next one works"

    run_virtually(main)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_wrong_row_count_is_a_failure_and_never_a_shifted_answer(rows: int) -> None:
    async def main() -> None:
        async def engine(batch: list[EncodedText]) -> np.ndarray:
            return np.zeros((rows if len(batch) == 2 else 1, 2), np.float32)

        scheduler = fake_scheduler(engine)
        answers = await asyncio.gather(scheduler.submit([text(4, 1)]), scheduler.submit([text(4, 2)]))
        assert [answer.logits.shape for answer in answers] == [(1, 2), (1, 2)]

        async def always(batch: list[EncodedText]) -> np.ndarray:
            return np.zeros((len(batch) + 1, 2), np.float32)

        with pytest.raises(EngineFailure, match="logits"):
            (await fake_scheduler(always).submit([text(4)])).logits  # noqa: B018

    run_virtually(main)


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    async def main() -> None:
        scheduler = fake_scheduler(FakeEngine(overhead=0, per_token=0.5), queue_tokens=20, batch_tokens=10)
        with pytest.raises(TooLarge, match="21 tokens and the queue holds 20"):
            await scheduler.submit([text(7), text(7), text(7)])
        await scheduler.submit([text(10)])  # so that the speed is known: 0.5 s per token
        running = asyncio.create_task(scheduler.submit([text(10)]))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(scheduler.submit([text(10), text(8)]))
        await asyncio.sleep(0.1)
        assert scheduler.queued_tokens == 18
        with pytest.raises(Overloaded, match="18 of 20") as caught:
            await scheduler.submit([text(3)])
        assert caught.value.retry_after_s == pytest.approx(9)
        await scheduler.submit([text(2)])
        await asyncio.gather(running, waiting)
        assert scheduler.queued_tokens == 0

    run_virtually(main)


def test_a_cancelled_request_leaves_the_queue_before_it_is_computed() -> None:
    async def main() -> None:
        engine = FakeEngine()
        scheduler = fake_scheduler(engine)
        running = asyncio.create_task(scheduler.submit([text(5, 1)]))
        await asyncio.sleep(0.1)
        gone = asyncio.create_task(scheduler.submit([text(6, 2), text(6, 3)]))
        stays = asyncio.create_task(scheduler.submit([text(6, 4)]))
        await asyncio.sleep(0.1)
        assert scheduler.queued_tokens == 18
        gone.cancel()
        await asyncio.sleep(0.01)
        assert scheduler.queued_tokens == 6
        await asyncio.gather(running, stays)
        assert [[int(item.input_ids[0]) for item in batch] for batch in engine.batches] == [[1], [4]]

    run_virtually(main)


def test_a_request_cancelled_at_the_last_moment_is_not_computed() -> None:
    async def main() -> None:
        seen: list[list[int]] = []

        async def engine(batch: list[EncodedText]) -> np.ndarray:
            seen.append([int(item.input_ids[0]) for item in batch])
            await asyncio.sleep(1)
            if len(seen) == 1:
                gone.cancel()  # and the scheduler goes on without another turn of the loop
            return np.zeros((len(batch), 2), np.float32)

        scheduler = fake_scheduler(engine)
        running = asyncio.create_task(scheduler.submit([text(5, 1)]))
        await asyncio.sleep(0.1)
        gone = asyncio.create_task(scheduler.submit([text(6, 2)]))
        await running
        await scheduler.close()
        assert seen == [[1]]

    run_virtually(main)


def test_closing_answers_what_was_accepted_and_refuses_the_rest() -> None:
    async def main() -> None:
        scheduler = fake_scheduler(FakeEngine(), batch_items=1)
        accepted = [asyncio.create_task(scheduler.submit([text(5, number)])) for number in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(scheduler.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await scheduler.submit([text(5)])
        await closing
        assert [numbers(task.result().logits) for task in accepted] == [[number] for number in range(5)]

    run_virtually(main)


def test_whoever_waits_is_answered_even_when_the_scheduler_itself_breaks() -> None:
    class Broken(Ledger):
        def batch_done(self, *_: object) -> None:
            raise AssertionError("a defect outside of the engine")

    async def main() -> None:
        scheduler = fake_scheduler(FakeEngine(), ledger=Broken(), batch_items=1)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        answers = await asyncio.gather(*(scheduler.submit([text(5)]) for _ in range(3)))
        assert [type(answer.rows[0]) for answer in answers] == [EngineFailure] * 3
        assert scheduler.queued_tokens == 0

    run_virtually(main)
