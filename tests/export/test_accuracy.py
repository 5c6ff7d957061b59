"""The accuracy gate on real texts and on made-up logits, and its remedies."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.encoding import EncodedText
from contract.errors import DataError, GateFailed, UsageError
from contract.manifest import load_manifest
from export import accuracy, remedies
from export.accuracy import LabelledTexts, compare, is_good_enough
from export.bundle import write_bundle
from export.recheck import recheck
from export.sources import Source, from_checkpoint
from export.words import described
from labelled.reader import DataOptions
from tests.tiny import tiny_checkpoint


def labelled(targets: np.ndarray, problem_type: str = "single_label_classification") -> LabelledTexts:
    return LabelledTexts(texts=(), targets=targets, problem_type=problem_type, fingerprint={"file": "x"})  # type: ignore[arg-type]


def compared(found: np.ndarray, expected: np.ndarray, data: LabelledTexts) -> dict[str, Any]:
    """Of a graph whose logits do not depend on the batch."""
    return compare(found, expected, data, mixed=found)


def test_figures_are_those_of_the_definition() -> None:
    targets = np.array([0, 1] * 500)
    before = np.stack([1.0 - targets, targets], axis=1).astype(np.float32)  # all right
    after = before.copy()
    after[:20] = after[:20, ::-1]  # the first 20 wrong
    figures = compared(after, before, labelled(targets))
    assert (figures["metric"], figures["before"], figures["after"]) == ("accuracy", 1.0, 0.98)
    assert figures["drop"] == pytest.approx(0.02)
    low, high = figures["drop_interval"]
    # The normal approximation of a share of 2 % of 1000.
    assert low == pytest.approx(0.02 - 1.96 * np.sqrt(0.02 * 0.98 / 1000), abs=0.002)
    assert high == pytest.approx(0.02 + 1.96 * np.sqrt(0.02 * 0.98 / 1000), abs=0.002)
    assert figures["agreement"] == 0.98
    assert not is_good_enough(figures)
    assert is_good_enough(compared(before + 0.3, before, labelled(targets)))


def test_one_label_that_depends_on_the_batch_is_too_many() -> None:
    targets = np.array([0, 1] * 500)
    logits = np.stack([1.0 - targets, targets], axis=1).astype(np.float32)
    mixed = logits.copy()
    mixed[7] = mixed[7, ::-1]
    figures = compare(logits, logits, labelled(targets), mixed=mixed)
    assert (figures["agreement"], figures["changed_beside_others"]) == (1, 1)
    assert not is_good_enough(figures)


def test_answers_do_not_depend_on_the_order_but_the_batches_do(source: Source) -> None:
    texts = source.text_encoder.encode_batch(["good " * (i % 40) for i in range(300)])
    widths: dict[bool, list[float]] = {}
    for mixed in (False, True):
        seen = widths[mixed] = []

        def answer(batch: Sequence[EncodedText], seen: list[float] = seen) -> np.ndarray:
            lengths = [len(text.input_ids) for text in batch]
            assert len(batch) * max(lengths) <= accuracy.BATCH_TOKENS
            seen.append(max(lengths) / np.mean(lengths))
            return np.array([[length] for length in lengths], np.float32)

        found = accuracy.answers(texts, answer, mixed=mixed)
        assert found[:, 0].tolist() == [len(text.input_ids) for text in texts]
    assert np.mean(widths[False]) < 1.3 < np.mean(widths[True])


def test_many_labels_and_numbers_have_their_own_figures() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, 3)).astype(np.float32)
    several = labelled((logits > 0).astype(np.float32), "multi_label_classification")
    assert compared(logits, logits, several)["after"] == 1
    assert compared(-logits, logits, several)["agreement"] == 0
    number = labelled(logits[:, :1].astype(np.float32), "regression")
    figures = compared(logits[:, :1] + 1, logits[:, :1], number)
    assert (figures["metric"], figures["agreement"]) == ("pearson", 0)
    assert figures["drop"] == pytest.approx(0, abs=1e-6)
    assert compared(logits[:, :1] + 0.01, logits[:, :1], number)["agreement"] == 1


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    return from_checkpoint(tiny_checkpoint(folder, "bert", labels=("no", "yes"), hidden_size=32, intermediate_size=64))


@pytest.fixture(scope="module")
def data(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with the labels that the model itself gives, so that fp32 is always right."""
    path = tmp_path_factory.mktemp("data") / "texts.csv"
    words = ["this", "film", "is", "good", "and", "that", "one", "was", "not", "nothing", "worked", "very", "nice"]
    random = np.random.default_rng(0)
    texts = sorted({" ".join(random.choice(words, random.integers(1, 12))) for _ in range(150)})
    batch = source.text_encoder.pad(source.text_encoder.encode_batch(texts))
    with torch.inference_mode():
        logits = source.model(**{name: torch.from_numpy(value) for name, value in batch.items()})
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["text", "label"])
        writer.writerows(zip(texts, (("no", "yes")[i] for i in logits.argmax(1).tolist()), strict=True))
    return path


def test_a_checked_bundle_says_so_and_auto_takes_int8(
    source: Source, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "MAX_DROP", 0.1)  # random weights: many texts lie near the border
    monkeypatch.setattr(accuracy, "MIN_AGREEMENT", 0.9)
    texts = source.read_labelled(data, DataOptions(), {})
    write_bundle(source, tmp_path / "b", name="x", precisions=("fp32", "int8"), labelled=texts)
    manifest = load_manifest(tmp_path / "b")
    figures = manifest.graph("int8").checks["accuracy"]
    assert figures["before"] == 1
    assert figures["agreement"] >= 0.9
    assert figures["data"]["file"] == "texts.csv"
    assert manifest.resolve("auto") == "int8"

    _, graphs = recheck(tmp_path / "b", data=data)
    assert "accuracy" not in graphs[0].checks
    assert graphs[1].checks["accuracy"] == figures
    assert graphs[1].checks["coverage"] == 1

    monkeypatch.setattr(accuracy, "MIN_AGREEMENT", 1.01)
    with pytest.raises(GateFailed, match=r"int8 is not as good as fp32 on .*texts\.csv: accuracy 1\.0000 in fp32"):
        recheck(tmp_path / "b", data=data)


def test_layers_that_mind_stay_in_float_and_too_many_is_a_refusal(
    source: Source, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = source.read_labelled(data, DataOptions(), {})
    tried: list[tuple[str, ...]] = []
    real = remedies.compare

    def never(*logits: np.ndarray, mixed: np.ndarray) -> dict[str, object]:
        return real(*logits, mixed=mixed) | {"drop": 0.2}

    monkeypatch.setattr(remedies, "compare", never)
    with pytest.raises(GateFailed, match=r"also with \d linear layers in fp32.*Export with --precision fp32"):
        write_bundle(
            source,
            tmp_path / "b",
            name="x",
            precisions=("fp32", "int8"),
            labelled=texts,
            advance=lambda stage, *_: tried.append((stage,)),
        )
    assert not (tmp_path / "b").exists()
    assert ("finding sensitive layers",) in tried

    calls = iter([0.2, 0.0])
    monkeypatch.setattr(
        remedies,
        "compare",
        lambda *arguments, mixed: real(*arguments, mixed=mixed) | {"drop": next(calls), "agreement": 1.0},
    )
    manifest = write_bundle(source, tmp_path / "b", name="x", precisions=("fp32", "int8"), labelled=texts)
    checks = manifest.graph("int8").checks
    (kept,) = checks["kept_in_fp32"]
    assert kept == remedies.sensitive_layers(source, texts.texts)[0]
    assert checks["coverage"] < 1


def test_the_sweep_finds_the_layer_that_was_made_sensitive(tmp_path: Path, data: Path) -> None:
    source = from_checkpoint(tiny_checkpoint(tmp_path / "c", "bert", labels=("no", "yes"), hidden_size=32))
    ffn = source.model.encoder.ffn[1]
    with torch.no_grad():  # a channel that is huge and counts for nothing takes the steps of all the others
        ffn.up.bias[0] += 300
        ffn.down.weight[:, 0] = 0
    texts = source.read_labelled(data, DataOptions(), {}).texts
    order = remedies.sensitive_layers(source, texts)
    assert set(order) == set(remedies._layers(source.model))
    assert order[0] == "encoder.ffn.1.down"


def test_labels_that_the_model_lacks_are_refused(source: Source, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("text,label\ngood,perhaps\nbad,no\n")
    with pytest.raises(DataError, match="'perhaps'"):
        source.read_labelled(path, DataOptions(), {})


def test_a_bundle_passes_again(source: Source, tmp_path: Path) -> None:
    manifest = write_bundle(source, tmp_path / "b", name="x", precisions=("fp32", "int8"))
    _, graphs = recheck(tmp_path / "b")
    for graph in graphs:
        assert graph.checks["stored_parameters"] == manifest.unique_parameters
    assert "max_abs_logit_difference" not in graphs[0].checks, "there is no PyTorch model to compare it with"
    assert graphs[1].checks["max_abs_logit_difference"] > 0


def test_a_graph_is_never_compared_with_itself(source: Source, data: Path, tmp_path: Path) -> None:
    write_bundle(source, tmp_path / "b", name="x", precisions=("int8",))
    _, (graph,) = recheck(tmp_path / "b")
    assert "max_abs_logit_difference" not in graph.checks
    assert "nothing here to compare with" in described(graph)["parity"]
    with pytest.raises(UsageError, match="has 'int8' only"):
        recheck(tmp_path / "b", data=data)
