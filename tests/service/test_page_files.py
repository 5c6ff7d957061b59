"""Files that the web page reads in the browser."""

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.browser import opened
from tests.service.test_serve import Served, serving


@pytest.fixture(scope="module")
def running(words: Path, browser: Any) -> Iterator[Served]:
    with serving(words) as served:
        yield served


@pytest.fixture
def page(browser: Any, running: Served) -> Iterator[Any]:
    with opened(browser, running.url) as page:
        yield page


def upload(page: Any, name: str, content: bytes, then: str) -> None:
    """Choose a file and wait for the words that follow."""
    page.get_by_label("Or a CSV or text file").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": content}
    )
    page.get_by_text(then).wait_for()


def test_a_csv_is_read_by_the_chosen_column(page: Any) -> None:
    upload(
        page,
        "films.csv",
        '\ufeffid;Review;more\r\n1;"good; ""film""\nthe";bad\r\n2;bad;\r\n3;;x\r\n'.encode(),
        "2 texts",
    )
    assert page.get_by_label("Column", exact=True).locator("option").all_inner_texts() == ["id", "Review", "more"]
    page.get_by_role("button", name="Classify").click()
    page.get_by_text("answered in").wait_for()
    assert page.locator(".text").all_inner_texts() == ['good; "film"\nthe', "bad"]
    page.get_by_label("Second text of pairs").select_option("more")
    page.get_by_label("The first row holds the names").uncheck()
    page.get_by_label("Column", exact=True).select_option("column 1")
    assert page.locator("#count").inner_text() == "4 texts"
    page.get_by_role("button", name="Clear").click()
    assert page.get_by_label("Texts, one a line").is_visible()
    upload(page, "films.txt", b"good\nbad film\n", "2 texts")
    assert page.get_by_label("Texts, one a line").input_value() == "good\nbad film\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("big.csv", b"x" * (2**21 + 1), "big.csv has 2.0 MB and this page reads up to 2.0 MB"),
        ("latin.txt", "gut für".encode("latin-1"), "latin.txt is not UTF-8"),
        ("open.csv", b'a,b\n1,"2', "row 2 has a quotation mark that is never closed"),
        ("empty.csv", b"", "the file has no rows"),
    ],
)
def test_files_that_do_not_fit_are_one_sentence(page: Any, name: str, content: bytes, sentence: str) -> None:
    upload(page, name, content, sentence)
    assert sentence in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Texts, one a line").is_visible()


def test_long_names_and_texts_stay_in_their_frame(page: Any) -> None:
    upload(page, "long.csv", f"{'name' * 90}\n{'text ' * 90}\n".encode(), "1 text")
    frame = page.locator("#ask").bounding_box()
    for part in ("#table", "#column", "#pair", "#preview li"):
        box = page.locator(part).bounding_box()
        assert box["x"] + box["width"] <= frame["x"] + frame["width"], part


def test_tables_are_read_as_python_reads_them(page: Any) -> None:
    """The csv module is the oracle, for tables that it wrote itself."""
    chance = random.Random(3)
    for delimiter in ",;\t":
        for ending in ("\n", "\r\n"):
            cells = ["", "a", 'say "x"', f"one{delimiter}two", "line\nbreak", " x ", "\u2028漢", '"', "'"]
            rows = [["name", "text", "last"], *([chance.choice(cells) for _ in range(3)] for _ in range(60))]
            file = io.StringIO()
            csv.writer(file, delimiter=delimiter, lineterminator=ending).writerows(rows)
            parsed = page.evaluate("async (text) => (await import('/page/texts.js')).parseTable(text)", file.getvalue())
            assert parsed == rows
