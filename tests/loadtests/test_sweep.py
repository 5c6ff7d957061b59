"""The regime map: real bundles, real servers, a real kill; and the prediction against a calculation by hand."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.errors import UsageError
from contract.manifest import load_manifest, load_text_encoder
from loadtests import roofline
from loadtests.costs import block_parameters, blocks, flops_per_token
from loadtests.processes import ROOT
from loadtests.sweep import VISITS, Cell, SweepPlan, check_cells, sweep, texts_of
from tests.tiny import tiny_bundle

PLAN = SweepPlan(
    lengths=(8, 32),
    batches=(1, 3),
    precisions=("fp32",),
    threads=(1,),
    max_tokens=32,
    rounds=2,
    cycles=1,
    seed=0,
)
ROBERTA = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}
ALBERT = ROBERTA | {"embedding_size": 128, "vocab_size": 30000, "max_position_embeddings": 512, "type_vocab_size": 2}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    roberta = tiny_bundle(folder / "roberta", family="roberta", name="tiny-roberta", max_length=64)
    return [roberta, tiny_bundle(folder / "albert", name="tiny-albert", max_length=64)]


def test_calls_of_too_many_tokens_are_left_out_and_short_ones_come_often() -> None:
    assert [(cell.texts, cell.length) for cell in PLAN.cells] == [(1, 8), (1, 32), (3, 8)]
    assert Cell(length=8, texts=1).times == 16
    assert Cell(length=512, texts=8).times == 1


@pytest.mark.parametrize("tokens", [3, 8, 64])
def test_texts_have_exactly_the_tokens_that_were_asked_for(bundles: list[Path], tokens: int) -> None:
    for bundle in bundles:
        encoder = load_text_encoder(bundle, load_manifest(bundle))
        text = texts_of(encoder, tokens, random.Random(0))
        assert len(encoder.encode(text).input_ids) == tokens


def test_lengths_that_a_bundle_does_not_read_are_refused(bundles: list[Path]) -> None:
    with pytest.raises(UsageError, match="reads at most 64"):
        check_cells(bundles, replace(PLAN, lengths=(65,), max_tokens=100))
    with pytest.raises(UsageError, match="at most 4 tokens"):
        check_cells(bundles, replace(PLAN, max_tokens=4))


def robal(*words: str) -> list[str]:
    return [sys.executable, "-m", "robal", "loadtest", "sweep", *words]


def test_a_killed_sweep_goes_on_and_a_report_comes_out(bundles: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    # fmt: off
    options = [
        *map(str, bundles), "--out", str(out), "--lengths", "8,32", "--batches", "1,3", "--max-tokens", "32",
        "--rounds", "3", "--cycles", "1",
    ]
    # fmt: on
    child = subprocess.Popen(robal(*options), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    give_up = time.monotonic() + 100
    while not (out / VISITS).exists() or (out / VISITS).read_text().count("\n") < 3:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    first = (out / VISITS).read_text()
    with (out / VISITS).open("a") as file:
        file.write('{"round": 1, "subj')  # as a kill in the middle of a line leaves it

    done = subprocess.run(robal(*options), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    lines = (out / VISITS).read_text().splitlines()
    assert len(lines) == 1 + 3 * 2
    assert lines[: first.count("\n")] == first.splitlines(), "what was measured is kept"
    visits = [json.loads(line) for line in lines[1:]]
    assert [visit["subject"] for visit in visits] == [0, 1, 1, 0, 0, 1]
    for visit in visits:
        counts = {(8, 1): 0, (32, 1): 0, (8, 3): 0}
        for sample in visit["samples"]:
            counts[sample["length"], sample["texts"]] += 1
            assert 0 < sample["engine_ms"] <= sample["latency_ms"]
        assert counts == {(8, 1): 16, (32, 1): 8, (8, 3): 10}

    report = json.loads((out / "sweep.json").read_text())
    (found,) = report["maps"]
    for cell in found["cells"]:
        own = [
            [
                sample["engine_ms"]
                for visit in visits
                if visit["subject"] == subject
                for sample in visit["samples"]
                if (sample["length"], sample["texts"]) == (cell["length"], cell["texts"])
            ]
            for subject in (0, 1)
        ]
        assert cell["engine_ms"] == pytest.approx([np.median(times) for times in own])
        assert cell["ratios"][1]["value"] == pytest.approx(np.median(own[1]) / np.median(own[0]))
    assert report["verdict"]["clauses"][0] in done.stdout.replace(".\n", "\n")
    assert "tiny-albert beside tiny-roberta" in (out / "sweep.md").read_text()
    assert "http" not in (out / "sweep.html").read_text().replace("data:image", "")

    other = subprocess.run(
        robal(*options, "--seed", "1"), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert other.returncode == 2
    assert "holds visits of another sweep" in other.stderr


def test_a_service_that_reads_other_tokens_than_it_was_sent_is_not_measured(
    bundles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.sweep.texts_of", lambda encoder, tokens, rng: "word")
    from contract.errors import Failure

    with pytest.raises(Failure, match="tokens where 8 were sent"):
        sweep(bundles[:1], replace(PLAN, lengths=(8,), batches=(1,)), folder=tmp_path / "out", work=tmp_path)


def test_counts_are_those_of_the_papers() -> None:
    assert block_parameters(ROBERTA) == 7_077_888
    assert flops_per_token(ROBERTA) == 12 * 2 * 7_077_888
    assert flops_per_token(ALBERT) == 12 * 2 * 7_077_888 + 2 * 128 * 768
    assert flops_per_token(ROBERTA, length=512) - flops_per_token(ROBERTA) == 12 * 4 * 512 * 768
    assert blocks(ALBERT | {"inner_group_num": 2}) == 24
    assert roofline.unique_blocks(ROBERTA, 124_645_632) == 12
    assert roofline.unique_blocks(ALBERT, 11_683_584) == 1


def test_the_prediction_is_the_sum_of_what_each_block_waits_for() -> None:
    """10 GB/s, 100 GFLOP/s, a cache of 32 MB: a block of 28.3 MB takes 2.83 ms to come, 8 tokens 1.13 ms to compute."""
    speeds = roofline.Machine(bandwidth=1e10, peak=1e11, cache_bytes=32_000_000)

    def ms(config: dict[str, int], unique: int, precision: str, tokens: int) -> float:
        seconds = roofline.predicted_s(
            config, precision=precision, unique_blocks=unique, texts=1, length=tokens, machine=speeds
        )
        return 1000 * seconds

    compute = 8 * (2 * 7_077_888 + 4 * 8 * 768) / 1e11 * 1000
    stream = 4 * 7_077_888 / 1e10 * 1000
    assert ms(ROBERTA, 12, "fp32", 8) == pytest.approx(12 * stream)
    assert ms(ALBERT, 1, "fp32", 8) == pytest.approx(12 * compute), "one block of 28.3 MB stays in 32 MB"
    assert ms(ALBERT, 1, "int8", 8) == pytest.approx(12 * compute)
    assert ms(ROBERTA, 12, "int8", 8) == pytest.approx(12 * max(compute, stream / 4))
    assert ms(ROBERTA, 12, "fp32", 64) == pytest.approx(ms(ALBERT, 1, "fp32", 64)), "enough tokens hide the weights"


def test_the_memory_is_read_at_a_plausible_speed() -> None:
    assert 1e9 < roofline.bandwidth(1) < 1e12
