"""The grid: which runs, at which scale, resumable, and a report that says what the seeds allow."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from contract.errors import Failure, Interrupted, UsageError
from pretrain import ablate
from pretrain.ablate import Grid, Sizes, Task, run_grid
from pretrain.ablate_render import markdown, page, write_report
from pretrain.ablate_report import SCORE, Row, build, distinct, judge, paper_counts
from pretrain.grid import EXPERIMENTS, experiments
from pretrain.store import Store
from tests.pretrain.tiny_runs import corpus, tiny_store

ROOT = Path(__file__).parents[2]
TINY = 128
"""Tokens of a run: two updates."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_store(tmp_path_factory.mktemp("store"))


def grid(store: Store, out: Path, *names: str, seeds: int = 2, **sizes: int) -> Grid:
    sizes = {"batch_size": 2, "window": 32} | sizes
    return Grid(
        store=store,
        out=out,
        experiments=experiments(names, sizes.get("hidden", 256)),
        seeds=seeds,
        task=Task(train=Path("train.tsv"), dev=None, options=""),
        sizes=Sizes(**sizes),
        micro_tokens=4096,
        device=torch.device("cpu"),
    )


def fake_score(label: int = 0) -> Any:
    """In place of fine-tuning: a score that depends on the checkpoint and seed alone."""
    calls: list[Path] = []

    def finetune(checkpoint: Path, out: Path, task: Task, *, seed: int) -> dict[str, Any]:
        assert (checkpoint / "model.safetensors").is_file()
        calls.append(checkpoint)
        steps = json.loads((checkpoint / "robal.json").read_text())["training"]["steps"]
        return {"metric": "macro_f1", "score": 0.5 + 0.01 * seed + (0.2 if steps else 0.0), "seconds": 0.1}

    finetune.calls = calls  # type: ignore[attr-defined]
    return finetune


def test_runs_that_two_tables_share_are_run_once(store: Store, tmp_path: Path) -> None:
    everything = grid(store, tmp_path, seeds=3, batch_size=32, window=128)
    tokens = 400_000
    jobs = everything.jobs(tokens)
    rows = sum(len(experiment.variants) for experiment in everything.experiments)
    assert len(everything.experiments) == len(EXPERIMENTS) == 7
    assert len({job.key for job in jobs}) == len(jobs)
    # five rows are runs of other tables
    assert len(jobs) == 3 * (rows + 2 - 5)
    assert [job.settings.seed for job in jobs] == sorted(job.settings.seed for job in jobs)
    names = {variant.name: everything.job(variant, 0, tokens) for e in everything.experiments for variant in e.variants}
    assert names["SOP"].key == names["E=128, all"].key
    assert names["dynamic"].key == names["segment-pair + NSP"].key
    assert names["6 layers"].key == names["SOP"].key
    assert names["2K x 125K"].key == names["full-sentences"].key
    assert names["ALBERT, 12 layers"].key == names["12 layers"].key
    assert names["static"].key != names["dynamic"].key


def test_a_narrower_grid_keeps_its_proportions(store: Store, tmp_path: Path) -> None:
    here = grid(store, tmp_path, hidden=128)
    shapes = {v.name: here.job(v, 0, TINY).settings.config for e in here.experiments for v in e.variants}
    assert {(shape.hidden_size, shape.intermediate_size) for shape in shapes.values()} == {(128, 512)}
    assert {shape.num_attention_heads for shape in shapes.values()} == {2}
    widths = {name: shape.embedding_size for name, shape in shapes.items() if name.endswith(", all")}
    assert widths == {"E=16, all": 16, "E=32, all": 32, "E=64, all": 64, "E=128, all": 128}
    assert shapes["SOP"] == shapes["E=64, all"]
    assert shapes["full-sentences"].embedding_size == 128
    shallow = grid(store, tmp_path, hidden=128, layers=2)
    depths = {v.name: shallow.job(v, 0, TINY).settings.config for e in shallow.experiments for v in e.variants}
    assert {depths[name].num_hidden_layers for name in ("static", "8K x 31K", "SOP", "E=16, ffn")} == {2}
    assert depths["24 layers"].num_hidden_layers == 24


def test_a_static_mask_is_seen_four_times_and_batches_make_equal_passes(store: Store, tmp_path: Path) -> None:
    here = grid(store, tmp_path, batch_size=8)
    tokens = 40 * ablate.train_tokens(store)
    jobs = {v.name: here.job(v, 0, tokens).settings.recipe for e in here.experiments for v in e.variants}
    assert jobs["static"].copies == 10  # 40 epochs, as in the paper
    passes = [jobs[name].batch_size * jobs[name].steps for name in ("256 x 1M", "2K x 125K", "8K x 31K")]
    assert max(passes) / min(passes) < 1.02
    rates = [jobs[name].learning_rate for name in ("256 x 1M", "2K x 125K", "8K x 31K")]
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 7, 10])


def test_the_scale_fits_the_budget(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "_calibrate", lambda grid, jobs: (1e11, 20.0))
    here = grid(store, tmp_path, "sentence", "depth", seeds=3, batch_size=32, window=128)
    tokens = ablate._choose_tokens(here, minutes=120, steps=None)
    jobs = here.jobs(tokens)
    training = sum(tokens * ablate._flops_per_token(job) / 1e11 for job in jobs if job.trained)
    tuning = sum(20 * ablate._depth(job) / 6 + ablate.OVERHEAD_S for job in jobs)
    assert training + tuning == pytest.approx(120 * 60, rel=1e-3)
    with pytest.raises(UsageError, match=r"runs need at least \d+ minutes here"):
        ablate._choose_tokens(here, minutes=1, steps=None)
    with pytest.raises(UsageError, match="give --minutes"):
        ablate._choose_tokens(here, minutes=None, steps=None)
    assert ablate._choose_tokens(here, minutes=None, steps=10) == 10 * 32 * 128


def test_an_interrupted_grid_goes_on_and_reports(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "_choose_tokens", lambda *_: TINY)
    here = grid(store, tmp_path / "out", "sentence")
    reports = []

    def report(tokens: int) -> None:
        write_report(build(here, tokens), here.out)
        reports.append((here.out / "report.md").read_text())

    scoring = fake_score()

    def interrupted(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if len(scoring.calls) == 3:
            raise KeyboardInterrupt
        return dict(scoring(*args, **kwargs))

    monkeypatch.setattr(ablate, "finetune", interrupted)
    with pytest.raises(Interrupted, match="3 runs are done and kept"):
        run_grid(here, minutes=None, steps=2, keep_checkpoints=False, report=report)
    monkeypatch.setattr(ablate, "finetune", scoring)
    assert run_grid(here, minutes=None, steps=2, keep_checkpoints=False, report=report) == (8, 8)
    assert len(scoring.calls) == 8  # the three that were done were not done again
    assert run_grid(here, minutes=None, steps=2, keep_checkpoints=False, report=report) == (8, 8)
    assert len(scoring.calls) == 8
    assert not list((here.out / "runs").glob("*/pretrained"))

    text = reports[-1]
    assert "no mask came back" not in text
    for row in ("none", "NSP", "SOP", "mini-albert, not pretrained"):
        assert f"| {row} |" in text
    assert "| 52.4 |" in text  # published, none on NSP
    assert "70.5 ± 0.7" in text  # 70 and 71
    assert "50.5 ± 0.7" in text
    assert "**The scale differs.**" in text
    assert "report/sentence.svg" in text
    result = json.loads(next(here.out.glob("runs/*/result.json")).read_text())
    assert result["parameters"]["unique"] > 0
    trained = [json.loads(p.read_text()) for p in here.out.glob("runs/*/result.json")]
    trained = [result for result in trained if result["trained"]]
    assert all({"nsp", "sop"} == result["cross"].keys() for result in trained)
    assert all(len(result["layers"]["distance"]) == 6 for result in trained)
    assert all(0 <= share <= 1 for result in trained for share in result["cross"].values())


def test_the_html_needs_nothing_else(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "_choose_tokens", lambda *_: TINY)
    monkeypatch.setattr(ablate, "finetune", fake_score())
    here = grid(store, tmp_path / "out", "masking", seeds=1)
    run_grid(
        here,
        minutes=None,
        steps=2,
        keep_checkpoints=True,
        report=lambda tokens: write_report(build(here, tokens), here.out),
    )
    content = (here.out / "report.html").read_text()
    assert "<svg" in content
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", content)
    assert "no mask came back" in content  # less than one pass: static and dynamic masks are the same
    assert list((here.out / "runs").glob("*/pretrained/model.safetensors"))
    assert json.loads((here.out / "report.json").read_text())["tables"][0]["experiment"] == "masking"


def test_a_spent_budget_stops_and_a_larger_one_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablate, "_choose_tokens", lambda *_: TINY)
    monkeypatch.setattr(ablate, "finetune", fake_score())
    here = grid(store, tmp_path / "out", "masking", seeds=1)
    done, jobs = run_grid(here, minutes=1e-6, steps=None, keep_checkpoints=False, report=lambda _: None)
    assert (done, jobs) == (0, 3)
    spent = json.loads((here.out / "grid.json").read_text())["spent_s"]
    assert run_grid(here, minutes=60, steps=None, keep_checkpoints=False, report=lambda _: None) == (3, 3)
    assert json.loads((here.out / "grid.json").read_text())["spent_s"] > spent


def test_results_of_another_store_and_unknown_experiments_are_refused(store: Store, tmp_path: Path) -> None:
    sizes = {"hidden": 256, "batch_size": 2, "window": 32}
    (tmp_path / "grid.json").write_text(json.dumps({"store": "other", "sizes": sizes, "tokens": 128, "spent_s": 0}))
    with pytest.raises(UsageError, match=r"settings: .*steps \(2 before, 3 now\), store \(other before"):
        run_grid(grid(store, tmp_path), minutes=1, steps=3, keep_checkpoints=False, report=lambda _: None)
    with pytest.raises(UsageError, match="no experiment 'dropout'; there are 'batch', 'depth'"):
        experiments(("dropout",), 256)


def test_a_failed_fine_tuning_says_why(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"fine-tuning .* failed: robal: .*nothing.*the command was: "):
        ablate.finetune(tmp_path, tmp_path / "out", Task(train=tmp_path / "nothing.csv", dev=None, options=""), seed=0)


def test_exact_counts_are_those_of_the_hand_calculation() -> None:
    # derived by arithmetic from the paper's configuration; V = 30,000, pooler counted, no map where E = H
    expected = {
        "all": (9_681_408, 11_683_584, 15_687_936, 31_114_752),
        "attention": (61_645_056, 63_647_232, 67_651_584, 83_078_400),
        "ffn": (35_684_352, 37_686_528, 41_690_880, 57_117_696),
        "none": (87_648_000, 89_650_176, 93_654_528, 109_081_344),
    }
    rows = paper_counts()
    for sharing, counts in expected.items():
        assert tuple(row["exact"] for row in rows if row["sharing"] == sharing) == counts
    assert {(row["E"], row["sharing"]): row["published"] for row in rows}[(128, "all")] == "12M"


def rows_of(**scores: list[float]) -> list[Row]:
    return [Row(name=name, values={SCORE.name: values}, published={}, layers={}) for name, values in scores.items()]


def test_findings_say_no_more_than_the_seeds_allow() -> None:
    clear = judge(rows_of(a=[90, 91, 92], b=[70, 71, 72]), SCORE)
    assert clear == "a has the best score %; it is better than b by more than the spread."
    level = judge(rows_of(a=[80, 84, 88], b=[79, 83, 87], c=[20, 21, 22]), SCORE)
    assert level == (
        "a has the best score %; with 3 seeds it cannot be told from b; it is better than c by more than the spread."
    )
    assert judge(rows_of(a=[90], b=[10]), SCORE).startswith("One seed: a")
    assert judge(rows_of(a=[90.0]), SCORE) == "Too few runs are done to compare."
    assert not distinct([1.0], [2.0])


@pytest.mark.slow
def test_the_command_ends_in_real_fine_tuning_scores(store: Store, tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    sentences = [line for line in corpus().splitlines() if line]
    with train.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([line, "light" if "light" in line else "dark"] for line in sentences[:120])
    command = [
        *(sys.executable, "-m", "robal", "pretrain", "ablate", str(store.folder), "--task", str(train)),
        *("--only", "masking", "--seeds", "1", "--steps", "1", "--finetune", "--epochs 1 --max-length 32"),
        *("--out", str(tmp_path / "out")),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs" in done.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for row in report["tables"][0]["rows"]:
        assert 0 <= row["values"]["score %"][0] <= 100


def test_both_renderings_have_the_same_cells(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "finetune", fake_score())
    here = grid(store, tmp_path / "out", "masking", seeds=1)
    for job in here.jobs(TINY)[:2]:
        ablate._run(here, job, keep_checkpoints=False)
    report = build(here, TINY)
    assert report.missing == 1
    text, web = markdown(report, set()), page(report, {})
    for cell in ("static", "70.0", "84.3", "92.9"):
        assert (cell in text) == (cell in web)
