import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.errors import DataError, UsageError
from contract.storage import read_json, sha256_file, write_json
from finetune.cli import app
from finetune.compare import compare, in_words
from finetune.evaluate import Scored
from finetune.scorer import open_scorer
from finetune.trained_on import training_files
from tests.tiny import tiny_bundle, tiny_checkpoint


def scored(right: list[int], problem_type: str = "single_label_classification") -> tuple[Any, Scored]:
    """A model that has the given rows right, of rows that are all of class 1."""
    logits = np.eye(2, dtype=np.float32)[np.array(right)]
    targets = np.ones(len(right), dtype=np.int64)
    scorer = SimpleNamespace(name=f"right in {sum(right)}", problem_type=problem_type)
    return scorer, Scored(figures={}, logits=logits, targets=targets, dataset=None)  # type: ignore[arg-type]


def test_a_real_difference_and_chance_are_told_apart() -> None:
    comparison = compare(scored([1] * 40 + [0] * 20), scored([1] * 58 + [0] * 2))
    assert comparison["mcnemar"] == {"only_first": 0, "only_second": 18, "p": pytest.approx(2 * 0.5**18)}
    difference = comparison["difference"]["accuracy"]
    assert difference["value"] == pytest.approx(0.3)
    assert 0.15 < difference["interval_95"][0] < 0.3 < difference["interval_95"][1] < 0.45
    assert "a real difference" in in_words(comparison)[-1]
    comparison = compare(scored([1] * 40 + [0] * 20), scored([1] * 39 + [0] * 19 + [1] * 2))
    assert comparison["mcnemar"] == {"only_first": 1, "only_second": 2, "p": 1.0}
    assert "no difference that these rows can show" in in_words(comparison)[-1]


def test_models_of_other_tasks_are_not_compared() -> None:
    with pytest.raises(UsageError, match="models of one task"):
        compare(scored([1, 0]), scored([1, 0], "multi_label_classification"))


def data(folder: Path) -> Path:
    path = folder / "test.csv"
    path.write_text("text,label\n" + "".join(f"a film {n},{('negative', 'positive')[n % 2]}\n" for n in range(40)))
    return path


def test_several_models_are_scored_by_one_command(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "a", "bert")
    tiny_bundle(tmp_path / "bundle", "bert")
    command = ["evaluate", str(tmp_path / "a"), str(tmp_path / "bundle"), "--data", str(data(tmp_path))]
    answer = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    first, second = answer["models"]
    assert first["accuracy"] == second["accuracy"]
    assert first["intervals_95"]["accuracy"][0] <= first["accuracy"] <= first["intervals_95"]["accuracy"][1]
    assert answer["comparisons"][0]["mcnemar"] == {"only_first": 0, "only_second": 0, "p": 1.0}
    assert "no difference that these rows can show" in CliRunner().invoke(app, command).stdout


@pytest.mark.parametrize("use", ["train", "dev"])
def test_the_training_file_is_refused_unless_told_and_the_dev_file_is_pointed_out(tmp_path: Path, use: str) -> None:
    tiny_checkpoint(tmp_path / "a", "bert")
    file = data(tmp_path)
    record = read_json(tmp_path / "a" / "robal.json", DataError)
    write_json(tmp_path / "a" / "robal.json", record | {"data": {use: {"sha256": sha256_file(file)}}})
    command = ["evaluate", str(tmp_path / "a"), "--data", str(file)]
    plain = CliRunner().invoke(app, command)
    if use == "dev":
        assert "chose the best checkpoint" in plain.stdout
        return
    assert isinstance(plain.exception, DataError)
    assert "--training-data" in str(plain.exception)
    assert CliRunner().invoke(app, [*command, "--training-data"]).exit_code == 0


def test_one_file_for_both_uses_counts_as_training_data() -> None:
    assert training_files({"data": {"train": {"sha256": "x"}, "dev": {"sha256": "x"}}}) == {"x": "train"}
    assert training_files({}) == {}


def test_a_bundle_knows_what_its_checkpoint_knew(tmp_path: Path) -> None:
    bundle, file = tiny_bundle(tmp_path / "bundle", "bert"), data(tmp_path)
    manifest = read_json(bundle / "manifest.json", DataError)
    record = {"data": {"train": {"sha256": sha256_file(file)}}, "calibration": {"temperature": 2.5, "thresholds": None}}
    manifest["provenance"]["checkpoint"] = record
    write_json(bundle / "manifest.json", manifest)
    assert open_scorer(bundle).calibration.temperature == 2.5
    refused = CliRunner().invoke(app, ["evaluate", str(bundle), "--data", str(file)])
    assert isinstance(refused.exception, DataError)
    assert "--training-data" in str(refused.exception)
