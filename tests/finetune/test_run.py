import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import finetune.start
from contract.errors import CheckpointError, Interrupted
from contract.scores import softmax
from encoders.checkpoint import load_classifier, open_checkpoint
from encoders.presets import PRESETS
from finetune.config import TrainingConfig
from finetune.evaluate import evaluate_file
from finetune.inputs import read_inputs
from finetune.predictions import write_predictions
from finetune.run import Finished, run_training
from finetune.scorer import open_scorer
from finetune.start import open_start
from labelled.reader import DataOptions
from tests.tiny import tiny_checkpoint

Write = Callable[[str, str | bytes], Path]
GOOD, BAD = "what a lovely thing number {}", "oh no, a terrible mess number {}"
ROWS = [(GOOD if n % 2 else BAD, n % 2, n) for n in range(80)]
CSV = "text,label\n" + "".join(f'"{text.format(n)}",{label}\n' for text, label, n in ROWS)


@pytest.fixture(autouse=True)
def _small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real presets with two narrow layers."""
    for name in ("mini-bert", "mini-roberta", "mini-albert"):
        small = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 320}
        shape = PRESETS[name]
        small["embedding_size"] = 16 if shape.model_type == "albert" else 32
        monkeypatch.setitem(PRESETS, name, replace(shape, **small))
    assert finetune.start.PRESETS is PRESETS


def go(train: Path, model: str, out: Path, renames: dict[str, str] | None = None, **options: object) -> Finished:
    new_head = bool(options.pop("new_head", False))
    log = options.pop("log", None)
    config = TrainingConfig(**{"epochs": 3, "batch_size": 16, **options})  # type: ignore[arg-type]
    inputs = read_inputs(
        train,
        None,
        DataOptions(),
        problem_type=config.problem_type,
        renames=renames or {},
        dev_fraction=config.dev_fraction,
        seed=config.seed,
    )
    start = open_start(model, inputs, config, new_head=new_head, kind="bpe")
    return run_training(start, config, DataOptions(), out=out, log=log)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mini-bert", "mini-roberta", "mini-albert"])
def test_a_preset_learns_and_its_checkpoint_is_a_hugging_face_folder(
    write: Write, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = go(
        write("train.csv", CSV), name, tmp_path / "out", {"0": "bad", "1": "good"}, epochs=10, learning_rate=3e-3
    )
    assert finished.progress.best is not None
    assert finished.progress.best.figures["accuracy"] == 1.0
    assert "random weights" in capsys.readouterr().err
    figures = evaluate_file(open_scorer(tmp_path / "out"), write("test.csv", CSV), DataOptions(), renames={})
    assert figures["accuracy"] == 1.0, "labels are renamed as in training"
    assert list(figures["per_class"]) == ["bad", "good"]
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = [GOOD.format(1), BAD.format(2), "  Ignore </s> [SEP] 店", ""]
    with torch.inference_mode():
        inputs = tokenizer(texts, padding=True, return_tensors="pt", split_special_tokens=True)
        logits = theirs(**inputs).logits.numpy()
    write("new.csv", "text\n" + "".join(f'"{text}"\n' for text in texts[:3]))
    out = tmp_path / "new.jsonl"
    write_predictions(open_scorer(tmp_path / "out"), tmp_path / "new.csv", DataOptions(), out, all_scores=True)
    answers = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    ours = np.array([list(answer["scores"].values()) for answer in answers])
    assert np.abs(ours - softmax(logits[:3])).max() < 1e-5
    assert theirs.config.id2label == {0: "bad", 1: "good"}


def test_the_record_says_what_made_it(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", CSV)
    go(train, "mini-bert", tmp_path / "out", {"0": "bad", "1": "good"}, seed=4, log=tmp_path / "log.jsonl")
    record = json.loads((tmp_path / "out" / "robal.json").read_text())
    assert record["format"] == 1
    assert record["data"]["train"]["label_counts"] == {"0": 40, "1": 40}
    assert record["data"]["train"]["sha256"] == __import__("hashlib").sha256(train.read_bytes()).hexdigest()
    assert record["data"]["split"] == {"from": "train", "train_rows": 72, "dev_rows": 8}
    assert record["task"]["label_names"] == {"0": "bad", "1": "good"}
    assert record["seed"] == record["training"]["config"]["seed"] == 4
    assert record["training"]["steps"] == 15
    assert {"accuracy", "macro_f1", "per_class", "confusion"} <= record["metrics"]["dev"].keys()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 16))
    assert sum("dev" in line for line in lines) == 3


def test_the_kept_checkpoint_has_the_recorded_figures(write: Write, tmp_path: Path) -> None:
    """The best one, not the last: a high learning rate makes evaluations go up and down."""
    train = write("train.csv", CSV)
    finished = go(train, "mini-bert", tmp_path / "out", epochs=8, learning_rate=0.05, patience=0, dev_fraction=0.3)
    best = finished.progress.best
    assert best is not None
    kept = read_inputs(
        train, None, DataOptions(), problem_type="single_label_classification", renames={}, dev_fraction=0.3, seed=0
    )
    dev = "text,label\n" + "".join(f'"{row.text}",{row.labels[0]}\n' for row in kept.dev)
    again = evaluate_file(open_scorer(tmp_path / "out"), write("dev.csv", dev), DataOptions(), renames={})
    assert again["accuracy"] == best.figures["accuracy"]
    assert again["loss"] == pytest.approx(best.figures["loss"], abs=1e-6)


@pytest.mark.parametrize("task", ["multi_label", "regression"])
def test_other_tasks(write: Write, tmp_path: Path, task: str) -> None:
    if task == "multi_label":
        lines = [
            {"text": text.format(n), "label": [name for name, given in (("x", label), ("y", n % 3 == 0)) if given]}
            for text, label, n in ROWS
        ]
    else:
        lines = [{"text": text.format(n), "score": 2.0 * label - 1} for text, label, n in ROWS]
    train = write("train.jsonl", "\n".join(map(json.dumps, lines)))
    go(train, "mini-bert", tmp_path / "out", task=task, epochs=20, learning_rate=3e-3, patience=0)
    scorer = open_scorer(tmp_path / "out")
    figures = evaluate_file(scorer, train, DataOptions(), renames={})
    if task == "multi_label":
        assert scorer.problem_type == "multi_label_classification"
        assert figures["per_class"]["x"]["f1"] == 1.0
    else:
        assert scorer.labels == ("score",)
        assert figures["pearson"] > 0.95
    for name in ("out.csv", "out.jsonl"):
        write_predictions(scorer, train, DataOptions(), tmp_path / name)
    answer = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])
    assert answer["labels"] == ["x"] if task == "multi_label" else answer["score"] > 0.5
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header == ("row,text,labels,score_x,score_y" if task == "multi_label" else "row,text,score")


def test_a_folder_without_a_head_gets_one_and_says_so(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import load_file, save_file

    base = tiny_checkpoint(tmp_path / "base")
    tensors = load_file(base / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier")},
        base / "model.safetensors",
    )
    lines = CSV.replace(",0\n", ",maybe\n", 3)
    go(write("train.csv", lines), str(base), tmp_path / "out", epochs=1)
    message = capsys.readouterr().err
    assert "classifier.weight" in message
    assert open_checkpoint(tmp_path / "out").config.labels == ("0", "1", "maybe")


def test_a_head_with_other_classes_needs_a_word(write: Write, tmp_path: Path) -> None:
    base = tiny_checkpoint(tmp_path / "base", labels=("negative", "positive"))
    train = write("train.csv", CSV)
    with pytest.raises(CheckpointError, match="--new-head"):
        go(train, str(base), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    go(train, str(base), tmp_path / "out", epochs=1, new_head=True)
    assert open_checkpoint(tmp_path / "out").config.labels == ("0", "1")


def test_a_head_with_the_same_classes_goes_on_in_its_own_order(write: Write, tmp_path: Path) -> None:
    base = tiny_checkpoint(tmp_path / "base", labels=("1", "0", "2"))
    go(write("train.csv", CSV), str(base), tmp_path / "out", epochs=1, learning_rate=1e-9)
    checkpoint = open_checkpoint(tmp_path / "out")
    assert checkpoint.config.labels == ("1", "0", "2")
    before = load_classifier(open_checkpoint(base)).model.classifier.weight
    assert (load_classifier(checkpoint).model.classifier.weight - before).abs().max() < 1e-6


def test_a_run_goes_on_from_a_checkpoint_with_renamed_classes(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", CSV)
    go(train, "mini-bert", tmp_path / "first", {"0": "bad", "1": "good"}, epochs=1)
    go(train, str(tmp_path / "first"), tmp_path / "second", epochs=1)
    checkpoint = open_checkpoint(tmp_path / "second")
    assert checkpoint.config.labels == ("bad", "good")
    assert checkpoint.record["task"]["label_names"] == {"0": "bad", "1": "good"}


def test_two_runs_are_equal_bit_for_bit_and_seeds_differ(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", CSV)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        go(train, "mini-roberta", tmp_path / name, seed=seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def test_a_model_that_always_gives_one_class_is_noticed(write: Write, tmp_path: Path) -> None:
    finished = go(write("train.csv", CSV), "mini-bert", tmp_path / "out", epochs=1, learning_rate=1e-8)
    assert any("same class" in note for note in finished.notes)


def test_too_few_rows_for_a_dev_set_still_train(write: Write, tmp_path: Path) -> None:
    finished = go(write("train.csv", "text,label\na,x\nb,y\n"), "mini-bert", tmp_path / "out", epochs=1)
    assert any("no dev rows" in note for note in finished.notes)
    assert open_checkpoint(tmp_path / "out").record["metrics"]["dev"] == {}


@pytest.mark.parametrize("evaluations", [0, 1])
def test_an_interrupted_run_says_what_is_on_disk(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluations: int
) -> None:
    import finetune.run

    calls = []
    real = finetune.run.evaluate_logits

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) > evaluations:
            raise KeyboardInterrupt
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(finetune.run, "evaluate_logits", interrupted)
    with pytest.raises(Interrupted) as caught:
        go(write("train.csv", CSV), "mini-bert", tmp_path / "out")
    if evaluations:
        assert "that of step 5 (dev macro_f1" in str(caught.value)
        assert load_classifier(open_checkpoint(tmp_path / "out")).model
    else:
        assert "no checkpoint was written" in str(caught.value)
        assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*")), "nothing half-written is left"


def test_a_run_that_learned_nothing_is_tried_again_at_a_third_of_the_rate(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("finetune.loop.FEWEST_STEPS", 1)
    go(write("train.csv", CSV), "mini-bert", tmp_path / "out", learning_rate=3e-8, seed=4)
    record = json.loads((tmp_path / "out" / "robal.json").read_text())["training"]["config"]
    assert (record["learning_rate"], record["seed"]) == (pytest.approx(1e-8), 5)
    assert "Trying once more with --learning-rate 1e-08 and --seed 5" in capsys.readouterr().err


def test_the_best_of_several_seeds_is_kept(write: Write, tmp_path: Path) -> None:
    finished = go(write("train.csv", CSV), "mini-bert", tmp_path / "out", seeds=3, metric="loss", epochs=2)
    record = json.loads((tmp_path / "out" / "robal.json").read_text())
    figures = [result["loss"] for result in record["seeds"]]
    assert [result["seed"] for result in record["seeds"]] == [0, 1, 2]
    assert len(set(figures)) > 1, "the seeds must differ for the choice to mean anything"
    assert record["metrics"]["dev"]["loss"] == min(figures)
    assert record["seed"] == record["seeds"][figures.index(min(figures))]["seed"]
    assert any("of 3 seeds" in note for note in finished.notes)


def test_a_finished_run_explains_itself(write: Write, tmp_path: Path) -> None:
    """Calibration, report and card are there, hold the figures of the record, and need nothing from outside."""
    texts = [f"{['good', 'bad', 'fine'][n % 3]} thing number {n} &<b>" for n in range(120)]
    labels = [["yes", "no", "yes"][n % 3] if n % 11 else "no" for n in range(120)]  # some labels are wrong
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
    out = tmp_path / "out"
    go(write("train.csv", "text,label\n" + rows), "mini-bert", out, epochs=8, learning_rate=3e-3, dev_fraction=0.3)
    record = json.loads((out / "robal.json").read_text())
    dev = record["metrics"]["dev"]
    low, high = record["metrics"]["intervals_95"]["accuracy"]
    assert low <= dev["accuracy"] <= high
    assert low < high
    calibration = record["calibration"]
    assert calibration.keys() == {"temperature", "thresholds", "abstain_below"}
    page, card = (out / "report.html").read_text("utf-8"), (out / "README.md").read_text("utf-8")
    for name in ("accuracy", "macro_f1", "loss"):
        assert f"{dev[name]:.4f}" in page
        assert f"{dev[name]:.4f}" in card
    assert "http" not in page, "self-contained"
    assert "&amp;&lt;b&gt;" in page, "texts are shown, not executed"
    assert "<b>" not in page
    for title in (
        "Classes",
        "Confusion",
        "Learning curves",
        "By length",
        "Most confident mistakes",
        "mean what they say",
    ):
        assert title in page
    assert record["data"]["train"]["sha256"] in card
    scorer = open_scorer(out)
    assert scorer.calibration.temperature == calibration["temperature"]
    assert list(scorer.trained_on.values()) == ["train"]
    # what predict writes are the calibrated scores
    new = write("new.csv", "text\na good thing\n")
    write_predictions(scorer, new, DataOptions(), tmp_path / "new.jsonl", all_scores=True)
    scores = json.loads((tmp_path / "new.jsonl").read_text())["scores"]
    model = load_classifier(open_checkpoint(out)).model
    encoded = scorer.text_encoder.pad([scorer.text_encoder.encode("a good thing")])
    with torch.inference_mode():
        logits = model(**{name: torch.from_numpy(array) for name, array in encoded.items()}).double()
    expected = (logits / calibration["temperature"]).softmax(1)[0].tolist()
    assert list(scores.values()) == pytest.approx(expected, abs=2e-6)


def test_b24_a_tokenizer_that_does_not_fit_and_b15_lost_tokens_are_told(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chinese = write("zh.csv", "text,label\n" + "".join(f"这家店很好{n},{'ab'[n % 2]}\n" for n in range(40)))
    base = tiny_checkpoint(tmp_path / "base", labels=("a", "b"), max_length=16)
    go(chinese, str(base), tmp_path / "out", epochs=1)
    said = " ".join(capsys.readouterr().err.split())
    assert "does not fit the texts" in said
    encoder = open_checkpoint(base).text_encoder
    assert encoder is not None
    full = [encoder.encode(f"这家店很好{n}").full_length for n in range(40)]
    lost = sum(max(0, length - 16) for length in full)
    assert f"{sum(n > 16 for n in full)} texts are longer than 16 tokens" in said
    assert f"{lost:,} tokens together" in said
