import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.errors import UsageError
from loadtests.compare import Plan, Visit, order
from loadtests.files import JSON, MARKDOWN, PAGE, REQUESTS, check_target, write_report
from loadtests.load import Load
from loadtests.markdown import render_markdown
from loadtests.page import render_page
from loadtests.plots import figures
from loadtests.report import build_report
from tests.loadtests.runs import request, run, steady_run, visit
from tests.loadtests.scripted import subject

LOADS = (Load(users=1, warmup_s=1, seconds=3), Load(users=8, warmup_s=1, seconds=3))
PLAN = Plan(loads=LOADS, rounds=4, threads=1, seed=0)
MACHINE = {
    "processor": "Abacus <i>9000</i>",
    "cores_usable": 4,
    "cores_physical": 2,
    "memory_bytes": 25_000_000_000,
    "system": "Linux 6",
    "load_average_before": 0.1,
    "settings": {},
    "versions": {"python": "3.11.7", "robal": "0.1.0", "locust": "2.47.0", "gevent": None},
}


def build(visits: list[Visit], plan: Plan = PLAN, **names: str) -> dict[str, Any]:
    subjects = (subject(names.get("a", "roberta")), subject(names.get("b", "albert"), shrink=10))
    return build_report(
        subjects,
        plan,
        visits,
        machine=MACHINE,
        traffic={"source": "synthetic", "count": 4096, "sha256": "ab" * 32},
        command="robal loadtest compare a b",
        created="2026-12-01 03:00 UTC",
    )


def experiment(slower: float = 1.0, plan: Plan = PLAN, **second: Any) -> list[Visit]:
    """B is ``slower`` times A; both drift together by up to 30 % from round to round."""
    rng = np.random.default_rng(0)
    visits = []
    for round_, index in order(plan.rounds, 2):
        factor = (1 + 0.1 * round_) * (slower if index else 1)
        runs = [
            steady_run(factor * rng.normal(10 * (load.users or 0), 0.2, 300), load.users or 0) for load in plan.loads
        ]
        visits.append(visit(index, *runs, rss_bytes=100_000_000 if index else 310_000_000))
    return visits


@pytest.fixture(scope="module", autouse=True)
def _few_draws() -> Iterator[None]:
    """The intervals are tested elsewhere; here they only have to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadtests.estimates.REPLICATES", 100)
        yield


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second and is looked at by other tests."""
    monkeypatch.setattr("loadtests.page.figures", lambda report: {})


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return build(experiment())


@pytest.fixture(scope="module")
def page(report: dict[str, Any]) -> str:
    return render_page(report)


def test_two_equal_servers_come_out_equivalent_in_spite_of_drift(report: dict[str, Any]) -> None:
    for level in report["levels"]:
        assert level["ratios"][1]["p50"]["verdict"] == level["ratios"][1]["p95"]["verdict"] == "equivalent"
        assert level["ratios"][1]["p50"]["value"] == pytest.approx(1, abs=0.01)
    assert report["verdict"]["valid"]
    assert report["verdict"]["clauses"][0] == "albert is 10.0x smaller on disk and takes 3.1x less memory than roberta"
    assert report["verdict"]["clauses"][1].startswith("with 1 user its median latency is 1.00x (95% CI")


@pytest.mark.parametrize(("slower", "verdict"), [(1.1, "slower"), (0.8, "faster")])
def test_a_different_server_does_not(slower: float, verdict: str) -> None:
    report = build(experiment(slower))
    for level in report["levels"]:
        assert level["ratios"][1]["p50"]["verdict"] == verdict
        assert level["ratios"][1]["p50"]["value"] == pytest.approx(slower, rel=0.01)


def test_the_numbers_are_those_of_the_steady_phase(report: dict[str, Any]) -> None:
    measured = report["levels"][0]["subjects"][0]
    assert measured["requests"] == {
        "steady": 1200,
        "ok": 1200,
        "refused": 0,
        "error": 0,
        "wrong": 0,
        "dropped": 0,
        "mislabelled_texts": 0,
    }
    assert measured["warmup"] == {"requests": 4, "first_ms": 500.0}
    assert measured["latency_ms"]["max"] < 20, "the 500 ms of the warm-up are not measured"
    assert measured["requests_per_s"]["value"] == pytest.approx(100, rel=0.01)
    assert len(measured["p50_by_round_ms"]) == 4
    assert measured["percentiles_ms"] == sorted(measured["percentiles_ms"])
    assert measured["percentiles_ms"][100] == measured["latency_ms"]["max"]
    assert sum(measured["stages_ms"].values()) == pytest.approx(measured["latency_ms"]["mean"])
    assert report["method"]["order"] == "ABBAABBA"
    assert report["subjects"][1]["memory"]["after_load_rss_bytes"] == 100_000_000


def test_a_gain_at_one_length_is_told_with_its_place() -> None:
    """B is twice as fast for the shortest texts only."""
    visits = []
    for _, index in order(PLAN.rounds, 2):
        runs = []
        for users in (1, 8):
            base = steady_run([10.0 + n % 7 / 100 for n in range(400)], users)
            quick = [
                request(r.sent_s, r.latency_ms / (2 if index and r.characters < 70 else 1), characters=r.characters)
                for r in base.requests
            ]
            runs.append(run(quick, users=users))
        visits.append(visit(index, *runs))
    sentence = build(visits)["verdict"]["sentence"]
    assert "with 1 user its median latency is 1.00x" in sentence
    assert "with 1 user, for the shortest quarter of the texts (about 12 tokens), it is 0.50x" in sentence
    assert "second quarter" not in sentence


@pytest.mark.usefixtures("no_figures")
def test_failures_make_the_report_invalid_and_keep_its_numbers() -> None:
    visits = experiment()
    bad = run(
        [*(request(1.5 + n / 100, 10.0) for n in range(90)), request(3, 0.1, outcome="wrong", problem="no results")]
    )
    visits[1] = visit(1, bad, visits[1].stretches[1].run)
    report = build(visits)
    assert not report["verdict"]["valid"]
    assert (
        "albert with 1 user: 1 of 991 requests got a wrong answer (mostly: no results)" in report["verdict"]["sentence"]
    )
    assert report["levels"][0]["subjects"][1]["requests"]["wrong"] == 1
    assert report["levels"][0]["ratios"][1] is not None
    html = render_page(report)
    assert "verdict invalid" in html
    assert "<div class=tiles>" not in html


def test_a_server_without_any_right_answer_still_gives_a_report(tmp_path: Path) -> None:
    visits = experiment()
    dead = run([request(2.0, 1.0, outcome="error", problem="no answer", status=0, tokens=0, stages_ms={})])
    visits = [visit(1, dead, dead) if item.subject == 1 else item for item in visits]
    report = build(visits)
    assert not report["verdict"]["valid"]
    assert report["levels"][0]["ratios"] == [None, None]
    assert figures(report) == {}
    write_report(tmp_path / "out", report, visits)
    assert "no right answer" in (tmp_path / "out" / PAGE).read_text()


def test_different_tokenizers_are_told_by_the_texts_that_both_read() -> None:
    visits = experiment()
    for position, item in enumerate(visits):
        if item.subject == 1:
            runs = []
            for stretch in item.stretches:
                more = [
                    request(r.sent_s, r.latency_ms, index=r.index, tokens=3 * r.tokens) for r in stretch.run.requests
                ]
                runs.append(run(more, users=stretch.run.load.users or 0))
            visits[position] = visit(1, *runs)
    report = build(visits)
    assert report["tokens_ratios"][1] == pytest.approx(3)
    assert any(
        "albert cuts the same texts into 3.00x as many tokens as roberta" in n for n in report["verdict"]["notes"]
    )


def test_few_rounds_give_no_verdict() -> None:
    plan = Plan(loads=LOADS[:1], rounds=2, threads=4, seed=0)
    report = build(experiment(1.5, plan), plan)
    assert report["levels"][0]["ratios"][1]["p50"]["verdict"] == "not enough data"
    notes = " ".join(report["verdict"]["notes"])
    assert "Fewer than 3 rounds" in notes
    assert "takes processor time" in notes
    render_page(report)


class Resources(HTMLParser):
    """Everything that a browser would fetch, and every tag."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        fetching = {"src", "href", "srcset", "data", "action", "poster", "background"}
        self.links += [value or "" for name, value in attrs if name in fetching]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(page: str) -> None:
    parser = Resources()
    parser.feed(page)
    assert parser.open == [], "every element is closed"
    assert parser.tags.isdisjoint({"script", "link", "iframe", "object", "embed", "a"})
    assert len(parser.links) == 5
    assert all(link.startswith("data:image/svg+xml;base64,") for link in parser.links)
    outside = re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)
    assert not re.search(r"https?:|url\(|@import|//[a-z]", outside)


def test_the_drawings_need_nothing_else(report: dict[str, Any]) -> None:
    drawn = figures(report)
    assert set(drawn) == {"ratios", "distributions", "lengths", "rounds", "stages"}
    for svg in drawn.values():
        assert svg.startswith("<svg")
        links = re.findall(r"""(?:href|src)="([^"]*)"|url\(([^)]*)\)""", svg)
        assert all((href or url).startswith("#") for href, url in links)
        assert set(re.findall(r"https?://[^\"]*", svg)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }


def test_the_same_numbers_give_the_same_page(report: dict[str, Any], page: str) -> None:
    assert render_page(json.loads(json.dumps(report))) == page


def test_texts_of_one_length_have_no_length_figure() -> None:
    visits = []
    for _, index in order(PLAN.rounds, 2):
        same = [run([request(1.5 + n / 100, 10.0 + n % 5) for n in range(90)], users=users) for users in (1, 8)]
        visits.append(visit(index, *same))
    report = build(visits)
    assert [level["bands"] for level in report["levels"]] == [[None, []], [None, []]]
    assert "lengths" not in figures(report)


@pytest.mark.usefixtures("no_figures")
def test_names_are_text_and_never_markup() -> None:
    report = build(experiment(), a="<b>|x", b="$\\frac{$ `")
    page = render_page(report)
    figures({**report, "levels": report["levels"][:1]})
    assert "<b>|x" not in page
    assert "<i>9000" not in page
    markdown = render_markdown(report)
    assert "<b>|x" not in re.sub(r"`[^`]*`", "", markdown)
    assert "`` runs/$\\frac{$ ` (roberta, fp32) ``" in markdown
    assert all(len(re.findall(r"(?<!\\)\|", line)) in (4, 5) for line in markdown.splitlines() if line.startswith("|"))


def test_markdown_has_the_verdict_first_and_whole_tables(report: dict[str, Any]) -> None:
    lines = render_markdown(report).splitlines()
    assert lines[0] == "# Load test: roberta and albert"
    assert report["verdict"]["sentence"] in lines[2].replace("\\", "")
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {4, 5}
    assert any(re.match(r"\| p50 latency, ms \| [\d.]+ \([\d.]+ to [\d.]+\) \|", line) for line in tables)
    assert any(line.startswith("- command: `robal loadtest") for line in lines)


@pytest.mark.usefixtures("no_figures")
def test_the_report_is_written_whole(tmp_path: Path, report: dict[str, Any]) -> None:
    visits = experiment()
    out = tmp_path / "deep" / "report"
    write_report(out, report, visits)
    assert {path.name for path in out.iterdir()} == {JSON, MARKDOWN, PAGE, REQUESTS}
    assert json.loads((out / JSON).read_text()) == report
    rows = gzip.decompress((out / REQUESTS).read_bytes()).decode().splitlines()
    assert len(rows) == 1 + sum(len(s.run.requests) for item in visits for s in item.stretches)
    assert rows[0].startswith("visit,service,load,phase,index,sent_s,")
    assert sum(",steady," in row for row in rows) == 2 * 4 * 2 * 300
    latency = [float(row.split(",")[7]) for row in rows[1:] if row.split(",")[1:4] == ["roberta", "1 user", "steady"]]
    assert float(np.median(latency)) == pytest.approx(report["levels"][0]["subjects"][0]["latency_ms"]["p50"]["value"])


@pytest.mark.usefixtures("no_figures")
def test_a_failing_write_leaves_the_old_report(
    tmp_path: Path, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report"
    write_report(out, report, experiment())

    def interrupt(report: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadtests.files.render_markdown", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_report(out, report | {"command": "new"}, experiment())
    assert json.loads((out / JSON).read_text()) == report
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_folder_of_the_user_is_never_replaced(tmp_path: Path) -> None:
    check_target(tmp_path / "new", overwrite=False)
    check_target(tmp_path, overwrite=False)
    (tmp_path / JSON).write_text("{}")
    with pytest.raises(UsageError, match="add --overwrite"):
        check_target(tmp_path, overwrite=False)
    check_target(tmp_path, overwrite=True)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds 'thesis\.tex'"):
        check_target(tmp_path, overwrite=True)
    with pytest.raises(UsageError, match="is a file"):
        check_target(tmp_path / JSON, overwrite=True)
