"""Two real processes over gloo: the same samples, sums and weights as one, whatever the shares; nobody waits."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from contract.errors import UsageError
from encoders.presets import preset
from pretrain.distributed import World, join, replicate
from pretrain.flops import build_model
from pretrain.resume import RunFolder
from pretrain.store import Store
from tests.pretrain.tiny_runs import ledger, metrics, tiny_store

ROOT = Path(__file__).parents[2]
OPTIONS = ["--layers", "1", "--max-length", "32", "--dropout", "0", "--ledger-ids", "--save-minutes", "0"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_store(tmp_path_factory.mktemp("store"))


def launch(store: Store, out: Path, *options: str, ranks: int) -> subprocess.Popen[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(port)]
    run = ["-m", "robal", "pretrain", "run", str(store.folder), *OPTIONS, *options, "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, *(torchrun if ranks > 1 else []), *run],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def alone(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five updates of one process, with batches of one to three samples: a second rank often gets none."""
    out = tmp_path_factory.mktemp("alone") / "out"
    finish(launch(store, out, "--steps", "5", "--batch-size", "1", ranks=1))
    assert min(line["samples"] for line in ledger(out)) == 1
    return out


def close(first: Path, second: Path) -> None:
    ours, theirs = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=5e-6, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_with_uneven_shares_equal_one(store: Store, alone: Path, tmp_path: Path, parallel: str) -> None:
    out = tmp_path / "out"
    finish(launch(store, out, "--steps", "5", "--batch-size", "1", "--parallel", parallel, ranks=2))
    assert ledger(out) == ledger(alone)  # ids, masks and labels, step by step
    assert [m["mlm_loss"] for m in metrics(out)] == pytest.approx([m["mlm_loss"] for m in metrics(alone)], rel=1e-4)
    assert metrics(out, "heldout")[0]["mlm_loss"] == pytest.approx(metrics(alone, "heldout")[0]["mlm_loss"], rel=1e-4)
    close(out, alone)
    unique = json.loads((out / "robal.json").read_text())["training"]["unique_parameters"]
    assert {line["sent_bytes"] for line in metrics(out)} == {4 * unique}


@pytest.mark.slow
def test_killed_on_two_ranks_and_resumed_on_one_the_samples_are_the_same(
    store: Store, alone: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    options = ("--steps", "30", "--batch-size", "3", "--save-steps", "4")
    finish(launch(store, whole, *options, ranks=1))
    process = launch(store, out, *options, ranks=2)
    until = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < until:
        path = RunFolder(out).ledger
        if path.exists() and path.read_text().count("\n") >= 10:
            break
        time.sleep(0.01)
    for child in [*psutil.Process(process.pid).children(recursive=True), process]:  # torchrun puts ranks into sessions
        child.kill()
    output, _ = process.communicate()
    assert RunFolder(out).steps(), output
    finish(launch(store, out, *options, "--resume", "--parallel", "ddp", ranks=1))
    assert ledger(out) == ledger(whole)
    close(out, whole)


@pytest.mark.slow
def test_a_rank_that_fails_ends_all(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out).mkdir()
    (out / "thesis.txt").write_text("precious")
    process = launch(store, out, "--steps", "2", ranks=2)
    output, _ = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "a folder of other things" in output


@pytest.mark.slow
def test_a_rank_that_dies_later_ends_all_and_the_run_goes_on_from_its_checkpoint(store: Store, tmp_path: Path) -> None:
    """B53: nobody waits for a rank that is gone."""
    out = tmp_path / "out"
    options = ("--steps", "100", "--batch-size", "3", "--save-steps", "2")
    process = launch(store, out, *options, ranks=2)
    until = time.monotonic() + 200
    while not RunFolder(out).steps() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    ranks = {int(child.environ()["RANK"]): child for child in psutil.Process(process.pid).children(recursive=True)}
    ranks[1].kill()
    output, _ = process.communicate(timeout=200)
    assert process.returncode != 0, output
    assert not any(child.is_running() for child in ranks.values())
    saved = max(RunFolder(out).steps())
    finish(launch(store, out, "--steps", "100", *options[2:], "--resume", ranks=1))
    assert [line["step"] for line in metrics(out)][-1] == 100 > saved


def test_a_model_cannot_be_sliced_over_one_process() -> None:
    config = preset("mini-bert")
    with pytest.raises(UsageError, match="torchrun --nproc-per-node"):
        replicate(build_model(config, sentence_task=False), World(rank=0, size=1, device=torch.device("cpu")), "fsdp")


def test_a_world_of_one_sums_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join(torch.device("cpu")) as world:
        assert (world.rank, world.size, world.leads) == (0, 1, True)
        assert world.total([3, 2**63 - 1]) == [3, 2**63 - 1]
        assert world.total_floats([0.5]) == [0.5]
        assert world.largest(4) == 4

        def fail() -> None:
            raise UsageError("no")

        with pytest.raises(UsageError, match="no"):
            world.raise_together(fail)
