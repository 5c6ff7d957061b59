from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from finetune.repeats import same_text
from finetune.split import split_rows
from labelled.reader import Row


def rows(items: list[tuple[str, str]]) -> list[Row]:
    return [Row(text, (label,), 0.0, number, number + 1) for number, (text, label) in enumerate(items, start=1)]


def split(data: list[Row], fraction: float = 0.1, seed: int = 0) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    return split_rows(data, fraction, seed, "single_label_classification")


def test_each_class_gives_its_share() -> None:
    data = rows([(f"t{n}", "common" if n % 10 else "rare") for n in range(1000)])
    train, dev = split(data)
    assert Counter(row.labels[0] for row in dev) == {"common": 90, "rare": 10}
    assert len(train) == 900


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz")), max_size=40),
    st.floats(0.05, 0.5),
    st.integers(0, 5),
)
def test_a_split_is_a_partition_in_order_without_shared_texts(
    items: list[tuple[str, str]], fraction: float, seed: int
) -> None:
    data = rows(items)
    train, dev = split(data, fraction, seed)
    assert sorted(train + dev, key=lambda row: row.row) == data
    assert [row.row for row in train] == sorted(row.row for row in train)
    assert not {same_text(row) for row in train} & {same_text(row) for row in dev}
    assert (train, dev) == split(data, fraction, seed)
    assert {row.labels for row in train} == {row.labels for row in data}


def test_a_class_with_one_text_stays_in_train() -> None:
    train, dev = split(rows([(f"row {n}", "common") for n in range(9)] + [("only one", "rare")]))
    assert "rare" in {row.labels[0] for row in train}
    assert {row.labels[0] for row in dev} == {"common"}


def test_copies_go_together_whatever_their_case_and_space() -> None:
    data = rows([(text, "x") for n in range(50) for text in (f"Hello  {n}", f"hello {n} ")])
    train, dev = split(data)
    assert len(dev) == 10
    assert not {same_text(row) for row in train} & {same_text(row) for row in dev}


def test_seeds_differ() -> None:
    data = rows([(f"t{n}", "x") for n in range(100)])
    assert split(data, seed=1) != split(data, seed=2)


def test_pairs_numbers_and_label_sets() -> None:
    assert same_text(Row(("a", "b"), (), 0.0, 1, 2)) != same_text(Row("a b", (), 0.0, 1, 2))
    numbers = [Row(f"t{n}", (), float(n), n, n) for n in range(100)]
    _, dev = split_rows(numbers, 0.1, 0, "regression")
    assert len({int(row.value // 10) for row in dev}) == len(dev) == 10, "one out of each tenth"
    sets = [Row(f"t{n}", ("a", "b") if n % 2 else (), 0.0, n, n) for n in range(40)]
    _, dev = split_rows(sets, 0.1, 0, "multi_label_classification")
    assert Counter(row.labels for row in dev) == {("a", "b"): 2, (): 2}
