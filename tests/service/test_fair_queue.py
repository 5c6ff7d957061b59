"""The queue: fair by tokens, and nobody is lost or starved."""

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from service.fair_queue import SPARE, FairQueue, Flow


def test_one_request_is_first_come_first_served() -> None:
    queue: FairQueue[int] = FairQueue()
    flow = Flow(1.0)
    for number in range(10):
        queue.push(number, tokens=10 - number, flow=flow)
    assert queue.take(max_tokens=100, max_items=100) == list(range(10))


def test_a_late_lone_text_comes_before_the_rest_of_a_list() -> None:
    queue: FairQueue[str] = FairQueue()
    many = Flow(1.0)
    for number in range(100):
        queue.push(f"list {number}", tokens=10, flow=many)
    queue.take(max_tokens=50, max_items=100)
    lone = queue.push("lone", tokens=10, flow=Flow(1.0))
    assert queue.tokens_before(lone.tag) == 20, "its own tokens, and one text of the list"
    assert "lone" in queue.take(max_tokens=20, max_items=2)


def test_what_was_removed_is_not_kept_while_nothing_is_taken() -> None:
    class Payload:
        pass

    queue: FairQueue[Payload] = FairQueue()
    first, last = Payload(), Payload()
    queue.push(first, tokens=5, flow=Flow(1.0))
    kept = []
    for _ in range(2000):
        payload = Payload()
        kept.append(weakref.ref(payload))
        queue.remove(queue.push(payload, tokens=5, flow=Flow(1.0)))
        del payload
    queue.push(last, tokens=5, flow=Flow(1.0))
    gc.collect()
    assert sum(reference() is not None for reference in kept) <= 2 * SPARE
    assert queue.take(max_tokens=100, max_items=9) == [first, last]


def test_what_was_removed_is_never_taken() -> None:
    queue: FairQueue[int] = FairQueue()
    entries = [queue.push(number, tokens=3, flow=Flow(1.0)) for number in range(5)]
    queue.remove(entries[0])
    queue.remove(entries[3])
    queue.remove(entries[3])
    assert (len(queue), queue.tokens) == (3, 9)
    assert queue.take(max_tokens=1, max_items=9) == [1], "at least one"
    assert queue.take(max_tokens=99, max_items=9) == [2, 4]
    assert (len(queue), queue.tokens) == (0, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 50), st.sampled_from(["push", "push", "take", "remove"])),
        max_size=80,
    ),
    st.integers(1, 120),
    st.integers(1, 6),
    st.sampled_from([0, 2, SPARE]),
)
def test_it_is_a_queue(steps: list[tuple[int, int, str]], max_tokens: int, max_items: int, spare: int) -> None:
    """Everything comes out once, a request's texts in order, within the limits."""
    queue: FairQueue[int] = FairQueue(spare=spare)
    flows = [Flow(float(1 + number)) for number in range(5)]
    inside: dict[int, tuple[int, int]] = {}  # number -> (flow, tokens), in order of arrival
    entries = {}
    out: list[int] = []
    for number, (flow, tokens, step) in enumerate(steps):
        if step == "push":
            entries[number] = queue.push(number, tokens=tokens, flow=flows[flow])
            inside[number] = (flow, tokens)
        elif step == "remove" and inside:
            chosen = list(inside)[tokens % len(inside)]
            queue.remove(entries[chosen])
            del inside[chosen]
        elif step == "take":
            taken = queue.take(max_tokens=max_tokens, max_items=max_items)
            assert bool(taken) == bool(inside)
            assert len(taken) <= max_items
            assert sum(inside[item][1] for item in taken) <= max_tokens or len(taken) == 1
            for item in taken:
                older = [other for other, (flow, _) in inside.items() if flow == inside[item][0] and other < item]
                assert not older, "texts of one request in order"
                del inside[item]
            out += taken
        assert len(queue) == len(inside)
        assert queue.tokens == sum(tokens for _, tokens in inside.values())
    while rest := queue.take(max_tokens=max_tokens, max_items=max_items):
        out += rest
        for item in rest:
            del inside[item]
    assert not inside
    assert len(out) == len(set(out))
