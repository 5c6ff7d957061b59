import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import BundleError, Failure, UsageError
from loadtests.compare import Plan, order, visit_all
from loadtests.load import Load
from loadtests.payloads import payloads, save_payloads, synthetic_texts
from loadtests.subjects import open_subjects
from tests.loadtests.scripted import servers_alive, subject
from tests.tiny import tiny_bundle

LOADS = (Load(users=1, warmup_s=0.2, seconds=0.6), Load(users=2, warmup_s=0.2, seconds=0.6))
PLAN = Plan(loads=LOADS, rounds=2, threads=1, seed=0)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traffic") / "payloads.jsonl"
    save_payloads(path, payloads(synthetic_texts(2048, seed=0)))
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundles") / "albert", name="tiny")


def test_the_order_is_a_b_b_a() -> None:
    assert "".join("AB"[subject] for _, subject in order(4, 2)) == "ABBAABBA"
    assert "".join("ABC"[subject] for _, subject in order(3, 3)) == "ABCCBAABC"
    assert [round_ for round_, _ in order(3, 2)] == [0, 0, 1, 1, 2, 2]


def test_a_comparison_visits_in_turn_and_never_both(tmp_path: Path, traffic: Path) -> None:
    told: list[tuple[str, float]] = []
    alive: list[int] = []

    def progress(doing: str, done_s: float) -> None:
        told.append((doing, done_s))
        alive.append(servers_alive())

    subjects = (subject("a", delay_ms=5), subject("b", delay_ms=30))
    visits = visit_all(subjects, PLAN, payloads=[traffic, traffic], work=tmp_path, on_progress=progress)
    assert [item.subject for item in visits] == [0, 1, 1, 0]
    assert max(alive) == 1
    assert servers_alive() == 0
    seconds = [done_s for _, done_s in told]
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(PLAN.load_s(2))
    assert any("round 2/2, b, 2 users" in doing for doing, _ in told)

    # Both servers of a round read the same texts; other rounds and loads begin elsewhere.
    starts = [
        [min(stretch.run.requests, key=lambda r: r.sent_s).index for stretch in item.stretches] for item in visits
    ]
    assert starts[0] == starts[1] == [0, 512]
    assert starts[2] == starts[3] == [1024, 1536]
    for item in visits:
        assert [stretch.run.load.users for stretch in item.stretches] == [1, 2]
        assert item.start_s > 0
        assert item.at_start.rss_bytes > 0
        assert item.peak_rss_bytes >= item.after_load.rss_bytes
        for stretch in item.stretches:
            assert stretch.server_cpu_s > 0
            assert stretch.other_cores >= 0
            delays = [request.latency_ms for request in stretch.run.answered()]
            assert min(delays) >= (5, 30)[item.subject]


def test_a_server_that_dies_ends_the_comparison(tmp_path: Path, traffic: Path) -> None:
    with pytest.raises(Failure, match=r"(?s)server of b ended by itself \(exit code 3\).*out of memory"):
        visit_all(
            (subject("a"), subject("b", die_after=20)),
            replace(PLAN, loads=LOADS[:1]),
            payloads=[traffic, traffic],
            work=tmp_path,
        )
    assert servers_alive() == 0


def test_a_bundle_is_described_by_its_manifest_and_files(bundle: Path, tmp_path: Path) -> None:
    other = tiny_bundle(tmp_path / "roberta", family="roberta", name="other")
    a, b = open_subjects((str(bundle), str(other)), precision="fp32", threads=3)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (a.name, b.name, a.family, b.family) == ("tiny", "other", "albert", "roberta")
    assert (a.parameters, a.unique_parameters) == (manifest["parameters"], manifest["unique_parameters"])
    assert a.size_bytes == (bundle / "model.onnx").stat().st_size + (bundle / "model.onnx_data").stat().st_size
    assert re.fullmatch("[0-9a-f]{64}", a.sha256)
    assert a.sha256 != b.sha256
    command = a.command(4321)
    assert command[command.index("serve") + 1] == str(bundle.absolute())
    assert {"4321", "3", "127.0.0.1"} <= set(command)


def test_names_are_told_apart(bundle: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    twin.symlink_to(bundle)
    assert [s.name for s in open_subjects((str(bundle), str(twin)), precision="fp32", threads=1)] == ["albert", "twin"]
    assert [s.name for s in open_subjects((str(bundle), str(bundle)), precision="fp32", threads=1)] == [
        "tiny (A)",
        "tiny (B)",
    ]


def test_what_is_not_a_bundle_is_one_sentence(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at most 8"):
        open_subjects([str(bundle)] * 9, precision="fp32", threads=1)
    with pytest.raises(BundleError, match="not a folder"):
        open_subjects((str(bundle), str(tmp_path / "absent")), precision="fp32", threads=1)
    with pytest.raises(BundleError, match="no int3 graph"):
        open_subjects((str(bundle), str(bundle)), precision="int3", threads=1)
