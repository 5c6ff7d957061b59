"""The web page in a real browser, in front of a real ``robal serve``."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.browser import contrast, opened
from tests.service.bundles import word_bundle
from tests.service.test_serve import Served, serving

KEY = "open-sesame"
MANY = tuple("abcdefgh")


@pytest.fixture(scope="module")
def running(words: Path, browser: Any) -> Iterator[Served]:
    with serving(words, "--max-chars", "200", "--max-texts", "5") as served:
        yield served


@pytest.fixture
def page(browser: Any, running: Served) -> Iterator[Any]:
    with opened(browser, running.url) as page:
        yield page


@pytest.fixture
def refused_page(browser: Any, running: Served) -> Iterator[Any]:
    """For tests in which the service says no."""
    with opened(browser, running.url, refusals=True) as page:
        yield page


def classify(page: Any, text: str) -> Any:
    """Type, press the button, and wait; the cards."""
    page.get_by_label("Texts, one a line").fill(text)
    page.get_by_role("button", name="Classify").click()
    page.get_by_text("answered in").wait_for()
    return page.locator("#results > li")


def percent(score: float) -> str:
    return "> 99.9 %" if score > 0.999 else "< 0.1 %" if score < 0.001 else f"{100 * score:.1f} %"


def test_labels_and_probabilities_are_those_of_the_service(page: Any, running: Served) -> None:
    texts = ["good film", "the bad film", "bad bad"]
    cards = classify(page, "\n".join([texts[0], "", texts[1], "  ", texts[2]]))
    assert cards.count() == len(texts)
    for text, card, result in zip(texts, cards.all(), running.classify(texts).json()["results"], strict=True):
        assert card.locator(".text").inner_text() == text
        assert card.locator(".verdict strong").inner_text() == result["label"]
        rows = [row.inner_text().split("\t") for row in card.locator(".bars tr").all()]
        assert [(row[0], row[-1]) for row in rows] == [
            (each["label"], percent(each["score"])) for each in result["scores"]
        ]
        width = card.locator(".best .fill").evaluate("(fill) => fill.style.getPropertyValue('--share')")
        assert float(width) == pytest.approx(result["score"])
        assert f"{result['tokens']} tokens" in card.locator(".verdict").inner_text()
        assert "truncated" not in card.inner_text()
    for stage in ("tokenize", "queue", "engine"):
        assert page.locator(".stage-list").get_by_text(stage, exact=True).is_visible()
    assert "words" in page.locator("#model").inner_text()
    assert page.title() == "words · robal"


def test_labels_are_shown_before_the_first_question_and_after_clearing(page: Any) -> None:
    labels = page.get_by_role("list", name="Labels of this model")
    page.get_by_text("positive").wait_for()
    assert labels.locator("li").all_inner_texts() == ["negative", "positive"]
    classify(page, "good")
    assert not labels.is_visible()
    page.get_by_role("button", name="Clear").click()
    assert labels.is_visible()
    assert page.locator("#results > li").count() == 0


def test_several_services_would_have_a_column_each(page: Any) -> None:
    """The page of today has one; its parts take a list."""
    shown = page.evaluate(
        """async () => {
          const { card } = await import("/page/results.js");
          const { Service } = await import("/page/service.js");
          const scores = (best) => [{ label: best, score: 0.75 }, { label: "other", score: 0.25 }];
          const result = (best) => ({ label: best, score: 0.75, scores: scores(best), given: null, tokens: 3 });
          const run = (name) => {
            const service = new Service(name, document.baseURI);
            return { service, answer: { body: { results: [result(`${name}'s`)] } } };
          };
          document.getElementById("results").replaceChildren(card("a text", 0, [run("old"), run("new")]));
          const text = (column, selector) => column.querySelector(selector).textContent;
          return [...document.querySelectorAll(".outcome")].map((each) => [text(each, "h3"), text(each, "strong")]);
        }"""
    )
    assert shown == [["old", "old's"], ["new", "new's"]]
    ids = page.locator(".outcome [id]").evaluate_all("(all) => all.map((each) => each.id)")
    assert len(ids) == len(set(ids)) == 4


def test_a_cut_text_says_so(page: Any) -> None:
    assert "truncated" in classify(page, "good " * 20).inner_text()


def test_words_are_coloured_by_what_they_do_and_said_in_words(page: Any, running: Served) -> None:
    text = "the good film, bad"
    card = classify(page, text).first
    card.get_by_role("button", name="Why?").click()
    card.get_by_text("Most for").wait_for()
    for label in ("negative", "positive"):
        card.get_by_label("Label to explain").select_option(label)
        card.get_by_text(f"speaks for {label}").wait_for()
        answer = httpx.post(f"{running.url}/explain", json={"inputs": text, "label": label}).json()
        strongest = max(abs(part["score_drop"]) for part in answer["parts"])
        assert strongest > 0.01
        expected = [
            (part["text"], "for" if part["score_drop"] > 0 else "against")
            for part in answer["parts"]
            if abs(part["score_drop"]) >= 0.04 * strongest
        ]
        marks = [(mark.inner_text(), mark.get_attribute("class")) for mark in card.locator("mark").all()]
        assert marks == expected
        assert {kind for _, kind in marks} == {"for", "against"}
        assert card.locator(".words").inner_text() == text
        ordered = sorted(answer["parts"], key=lambda part: -part["score_drop"])
        sentence = card.get_by_text("Most for").inner_text()
        assert sentence.startswith(f"Most for {label}: “{ordered[0]['text']}”")
        assert f"Most against it: “{ordered[-1]['text']}”" in sentence
        card.get_by_text("Every word as a table").click()
        cells = [row.inner_text().split("\t") for row in card.locator(".numbers tbody tr").all()]
        for row, part in zip(cells, answer["parts"], strict=True):
            assert row[0] == part["text"]
            shown = [float(cell.replace("−", "-").removesuffix(" points")) for cell in row[1:]]
            assert shown == pytest.approx([100 * part["score_drop"], part["logit_drop"]], abs=0.051)


def test_characters_beyond_the_basic_plane_do_not_shift_the_colours(page: Any) -> None:
    card = classify(page, "👍🏽 film 👨‍👩‍👧 good").first
    card.get_by_role("button", name="Why?").click()
    card.get_by_text("Every word as a table").click()
    words = [row.inner_text().split("\t")[0] for row in card.locator(".numbers tbody tr").all()]
    assert words == ["👍🏽", "film", "👨‍👩‍👧", "good"]
    marks = card.locator("mark").all_inner_texts()
    assert marks
    assert set(marks) <= set(words)


def test_pairs_are_divided_by_a_tab(page: Any, running: Served) -> None:
    card = classify(page, "good film\tbad").first
    assert card.locator(".text").all_inner_texts() == ["good film", "bad"]
    (result,) = running.classify([{"text": "good film", "text_pair": "bad"}]).json()["results"]
    assert percent(result["score"]) in card.inner_text()
    card.get_by_role("button", name="Why?").click()
    card.locator("mark").first.wait_for()
    assert card.locator(".words").all_inner_texts() == ["good film", "bad"]


def test_a_text_that_fails_has_its_error_and_its_neighbours_their_labels(page: Any) -> None:
    fine, failed = classify(page, "good\nnan").all()
    assert "positive" in fine.inner_text()
    assert failed.locator(".fault").inner_text().startswith("internal_error")
    assert failed.get_by_role("button").count() == 0


def test_a_refused_request_shows_type_sentence_and_place(refused_page: Any) -> None:
    refused_page.get_by_label("Texts, one a line").fill("good\n" + "x" * 201)
    refused_page.get_by_role("button", name="Classify").click()
    alert = refused_page.get_by_role("alert")
    alert.get_by_text("too_large").wait_for()
    assert "201 characters and the limit is 200" in alert.inner_text()
    assert alert.locator("code").first.inner_text() == "inputs[1]"
    classify(refused_page, "good")
    assert alert.inner_text() == ""


def test_no_text_and_too_many_are_said_before_anything_is_sent(page: Any) -> None:
    page.get_by_role("button", name="Classify").click()
    assert "There is no text yet" in page.get_by_role("alert").inner_text()
    assert page.evaluate("document.activeElement.id") == "texts"
    cards = classify(page, "good\n" * 7)
    assert page.locator("#count").inner_text().startswith("7 texts; the first 5")
    assert cards.count() == 5


def test_markup_in_a_text_is_text(page: Any) -> None:
    text = "<img src=x onerror=\"document.title='gone'\"> good"
    card = classify(page, text).first
    card.get_by_role("button", name="Why?").click()
    card.locator(".words").wait_for()
    assert card.locator(".words").inner_text() == text
    assert card.locator("img").count() == 0
    assert page.title() == "words · robal"


def test_everything_works_by_keyboard_alone(page: Any) -> None:
    focused = "document.activeElement.textContent.trim() || document.activeElement.id"
    order = []
    for _ in range(6):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
    assert order == ["Skip to the answers", "HTTP API", "texts", "file", "Classify", "Clear"]
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    page.keyboard.type("good film\nbad")  # Enter is a new line here
    page.keyboard.press("Control+Enter")
    page.get_by_text("answered in").wait_for()
    assert page.locator("#results > li").count() == 2
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Why? Show the words"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where the focus is can be seen"
    page.keyboard.press("Enter")
    page.locator("mark").first.wait_for()
    assert page.locator("[aria-expanded=true]").count() == 1
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # the other label
    page.get_by_text("speaks for negative").or_(page.get_by_text("speaks for positive")).first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Every word as a table"
    page.keyboard.press("Enter")
    assert page.locator(".numbers").is_visible()


def test_every_control_has_a_name_and_changes_are_announced(page: Any) -> None:
    card = classify(page, "good").first
    card.get_by_role("button", name="Why?").click()
    card.locator("mark").first.wait_for()
    unnamed = page.evaluate(
        """[...document.querySelectorAll("input, select, textarea, button")]
             .filter((node) => !node.labels?.length && !node.textContent.trim()).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    assert page.get_by_role("status").first.inner_text().startswith("1 text, 3 tokens, answered in")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(browser: Any, running: Served, scheme: str) -> None:
    with opened(browser, running.url, color_scheme=scheme, viewport={"width": 1280, "height": 900}) as page:
        card = classify(page, "good film\n" + "bad " * 20 + "\nnan").first
        card.get_by_role("button", name="Why?").click()
        card.locator("mark").first.wait_for()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) / 3
        assert (brightness > 128) == (scheme == "light")
        for selector in (
            "body",
            ".hint",
            ".verdict strong",
            ".score",
            ".badge",
            ".badge.warn",
            ".fault",
            ".fault strong",
        ):
            assert contrast(page, selector) >= 4.5, selector
        for selector in (".primary", "summary", "mark.for", "#model", ".stage-list dt", "pre", "header a"):
            assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("width", [340, 800, 1600])
def test_nothing_sticks_out_at_any_width(browser: Any, running: Served, width: int) -> None:
    with opened(browser, running.url, viewport={"width": width, "height": 700}) as page:
        card = classify(page, "x" * 199 + "\ngood").first
        card.get_by_role("button", name="Why?").click()
        card.get_by_text("Every word as a table").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def opened_with_keys(browser: Any, words: Path, folder: Path) -> AbstractContextManager[Served]:
    path = folder / "keys.txt"
    path.write_text(hashlib.sha256(KEY.encode()).hexdigest() + " me\n")
    return serving(words, "--api-keys", str(path))


def test_a_key_is_asked_for_and_kept_in_memory_only(browser: Any, words: Path, tmp_path: Path) -> None:
    with (
        opened_with_keys(browser, words, tmp_path) as served,
        opened(browser, served.url, refusals=True) as page,
    ):
        field = page.get_by_label("API key")
        field.wait_for()
        page.get_by_label("Texts, one a line").fill("good")
        page.get_by_role("button", name="Classify").click()
        page.get_by_role("alert").get_by_text("unauthorized").wait_for()
        assert page.evaluate("document.activeElement.id") == "key"
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        page.get_by_text("answered in").wait_for()
        assert page.get_by_role("alert").inner_text() == ""
        assert "words" in page.locator("#model").inner_text()
        page.get_by_role("button", name="Why?").click()
        page.locator("mark").first.wait_for()
        assert KEY not in page.content()
        assert KEY not in page.url
        assert "$ROBAL_KEY" in page.locator("pre").first.inner_text()
        page.reload()
        assert field.input_value() == ""


def test_what_is_copied_runs_and_has_the_same_answer(browser: Any, running: Served, tmp_path: Path) -> None:
    texts = ['it\'s "good"', "the $bad `film` \\"]
    with opened(browser, running.url, permissions=["clipboard-read", "clipboard-write"]) as page:
        classify(page, "\n".join(texts))
        copied = {}
        for name in ("curl", "Python"):
            page.get_by_role("button", name=f"Copy {name}").click()
            page.get_by_text(f"{name} copied.").wait_for()
            copied[name] = page.evaluate("navigator.clipboard.readText()")
    expected = running.classify(texts).json()["results"]
    program = tmp_path / "call.py"
    program.write_text(copied["Python"])
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "".join(f"{result}\n" for result in expected)
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    run = subprocess.run(["sh", "-c", f"{copied['curl']} -s"], capture_output=True, text=True, timeout=60, check=True)
    assert httpx.Response(200, text=run.stdout).json()["results"] == expected


def test_many_labels_are_folded_and_those_given_are_named(browser: Any, tmp_path: Path) -> None:
    bundle = word_bundle(tmp_path / "many", labels=MANY, problem_type="multi_label_classification")
    with serving(bundle) as served, opened(browser, served.url) as page:
        card = classify(page, "good film").first
        (result,) = served.classify(["good film"]).json()["results"]
        assert f"given: {', '.join(result['given'])}" in card.inner_text()
        assert card.locator(".bars tr:visible").count() == 5
        card.get_by_text("3 more labels").click()
        assert card.locator(".bars tr:visible").count() == 8


def test_a_service_that_is_gone_is_said_in_a_sentence(browser: Any, words: Path) -> None:
    with serving(words) as served, opened(browser, served.url, refusals=True) as page:
        classify(page, "good")
        served.stop()
        page.get_by_role("button", name="Classify").click()
        page.get_by_role("alert").get_by_text("unreachable").wait_for()
