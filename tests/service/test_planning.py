"""What the machine does best is measured once, remembered, and used where it holds."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import BundleError, UsageError
from contract.manifest import load_manifest
from service.cli import with_plan
from service.engine import PROVIDERS, OnnxEngine, check_provider
from service.planning import Measured, choose, layouts, measure, planned, save_plan
from service.settings import Settings, available_cpus
from tests.tiny import tiny_bundle


def test_layouts_use_all_processors() -> None:
    assert layouts(1) == [(1, 1)]
    assert layouts(2) == [(2, 1), (1, 2)]
    assert layouts(12) == [(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]


def way(threads: int, instances: int, lone_ms: float, texts_per_s: float) -> Measured:
    return Measured(precision="fp32", threads=threads, instances=instances, lone_ms=lone_ms, texts_per_s=texts_per_s)


WAYS = [way(2, 1, 10.0, 50.0), way(1, 2, 18.0, 70.0)]


def test_the_goal_decides() -> None:
    assert choose(WAYS, "fp32", "latency") == WAYS[0]
    assert choose(WAYS, "fp32", "throughput") == WAYS[1]


def test_a_real_bundle_is_measured(tmp_path: Path) -> None:
    steps = []
    measured = measure(tiny_bundle(tmp_path / "bundle"), cpus=2, rounds=1, advance=lambda *step: steps.append(step[1:]))
    assert [(each.threads, each.instances) for each in measured] == [(2, 1), (1, 2)]
    assert all(each.lone_ms > 0 and each.texts_per_s > 0 for each in measured)
    assert steps == [(number, 4) for number in range(4)]


def test_a_plan_is_used_on_its_machine_only_and_flags_win(words: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(words, bundle)
    cpus = available_cpus()
    assert planned(bundle, precision="fp32", cpus=cpus) is None
    save_plan(bundle, WAYS, cpus=cpus, goal="throughput")
    assert planned(bundle, precision="fp32", cpus=cpus) == WAYS[1]
    assert planned(bundle, precision="fp32", cpus=cpus + 1) is None
    manifest = load_manifest(bundle)  # the plan is no part of what was exported
    settings = with_plan(Settings(bundle=bundle), manifest)
    assert settings.layout(cpus) == (1, 2)
    assert Settings(bundle=bundle, threads=3).layout(cpus) == (3, 1)


@pytest.mark.filterwarnings("ignore:Specified provider")  # onnxruntime's own word on it
def test_a_provider_that_is_not_installed_is_one_sentence(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match=r"--provider cuda: this onnxruntime has 'cpu'; put the package onnxruntime-gpu"
    ):
        OnnxEngine(words, load_manifest(words), precision="fp32", threads=1, provider="cuda")
    with pytest.raises(UsageError, match=r"--provider gpu: this onnxruntime has 'cpu'; give one of these"):
        check_provider("gpu")
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [*PROVIDERS.values()])
    with pytest.raises(UsageError, match="--provider cuda does not start on this machine"):
        OnnxEngine(words, load_manifest(words), precision="fp32", threads=1, provider="cuda")


def test_the_plans_provider_is_served(words: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(words, bundle)
    faster = replace(WAYS[0], provider="openvino", texts_per_s=90.0)
    save_plan(bundle, [*WAYS, faster], cpus=available_cpus(), goal="throughput")
    assert with_plan(Settings(bundle=bundle), load_manifest(bundle)).provider == "openvino"


def test_a_damaged_plan_is_one_sentence(words: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(words, bundle)
    save_plan(bundle, WAYS, cpus=1, goal="latency")
    plan = json.loads((bundle / "plan.json").read_text())
    del plan["measured"][0]["threads"]
    (bundle / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(BundleError, match=r"plan\.json is damaged .* run `robal plan` again"):
        planned(bundle, precision="fp32", cpus=1)
