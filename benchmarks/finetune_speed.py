"""Fine-tuning and scoring speed beside Hugging Face: the Trainer, and the text-classification pipeline.

    python benchmarks/finetune_speed.py train DATA MODEL [--rounds 3] [--steps 12] [--batch 32]
    python benchmarks/finetune_speed.py predict DATA CHECKPOINT [--bundle BUNDLE] [--rounds 3] [--rows 1000]

``train`` gives both loops the same tokenised rows, batch size, fused AdamW, dropout and threads, fp32, with length
grouping on in the Trainer. Reported: real (non-padding) tokens per second between the first dropped steps and the last.
``predict`` labels the same file of texts with ``robal predict``'s code and with the pipeline (the faster of batch sizes
1 and 32, dynamic padding): texts per second, reading and writing included for robal; and the share of equal labels.
Rounds interleave what is compared; each figure is the median over rounds, each ratio has its range.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

from encoders.checkpoint import load_classifier, open_checkpoint
from finetune.config import TrainingConfig
from finetune.events import Evaluation, Progress, Step
from finetune.loop import train
from finetune.predictions import write_predictions
from finetune.scorer import open_scorer
from labelled.labels import LabelSet
from labelled.reader import DataOptions, read_dataset
from labelled.rows import EncodedRows, encode_rows, targets_of

DROPPED_STEPS = 2
ONE = "single_label_classification"


class _Clock:
    """A ``Watch`` that notes when each step ended and how many real tokens it had."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.tokens: list[int] = []

    def stepped(self, step: Step) -> None:
        self.tokens.append(step.tokens)
        self.at.append(time.perf_counter())

    def evaluated(self, evaluation: Evaluation) -> None:
        pass

    def rate(self) -> float:
        """Real tokens per second after the dropped steps."""
        return sum(self.tokens[DROPPED_STEPS:]) / (self.at[-1] - self.at[DROPPED_STEPS - 1])


def train_robal(folder: Path, rows: EncodedRows, labels: LabelSet, batch: int) -> float:
    """One epoch of our loop on the rows."""
    loaded = load_classifier(
        open_checkpoint(folder), labels=labels.names, problem_type=ONE, new_head=True, strict=False
    )
    clock = _Clock()
    config = TrainingConfig(epochs=1, learning_rate=2e-5, batch_size=batch, metric="accuracy", max_length=512)
    train(
        loaded.model,
        rows,
        config,
        precision="fp32",
        evaluate=dict,
        keep=lambda progress: None,
        watch=clock,
        progress=Progress(),
    )
    return clock.rate()


def train_hugging_face(folder: Path, rows: EncodedRows, labels: LabelSet, batch: int) -> float:
    """One epoch of the Trainer on the same rows."""
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(labels.names), attn_implementation="sdpa"
    )
    padder = transformers.DataCollatorWithPadding(AutoTokenizer.from_pretrained(folder))
    clock, pending = _Clock(), []

    def collate(items: list[dict[str, Any]]) -> Any:
        padded = padder(items)
        pending.append(int(padded["attention_mask"].sum()))
        return padded

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tokens.append(pending.pop(0))
            clock.at.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch,
            use_cpu=True,
            num_train_epochs=1,
            per_device_train_batch_size=batch,
            group_by_length=True,
            learning_rate=2e-5,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            save_strategy="no",
            eval_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        items = [
            {"input_ids": text.input_ids.tolist(), "attention_mask": [1] * len(text.input_ids), "labels": int(target)}
            for text, target in zip(rows.texts, rows.targets, strict=True)
        ]
        Trainer(model, arguments, collate, items, callbacks=[Ends()]).train()  # type: ignore[arg-type]
    return clock.rate()


def bench_train(arguments: argparse.Namespace) -> None:
    """Interleaved rounds of both loops."""
    checkpoint = open_checkpoint(arguments.model)
    assert checkpoint.text_encoder is not None
    dataset = read_dataset(arguments.data, _options(arguments), ONE)
    labels = LabelSet.from_data(dataset, {})
    count = arguments.batch * (DROPPED_STEPS + arguments.steps)
    chosen = np.random.default_rng(0).permutation(len(dataset.rows))[:count]
    part = [dataset.rows[index] for index in chosen]
    rows = EncodedRows(encode_rows(checkpoint.text_encoder, part), targets_of(part, labels, ONE))
    spread = np.percentile(rows.lengths, (5, 50, 95)).round()
    print(f"{len(part)} rows of {arguments.data.name}; tokens: 5 % {spread[0]}, median {spread[1]}, 95 % {spread[2]}")
    _rounds(
        arguments.rounds,
        {
            "trainer": lambda: train_hugging_face(arguments.model, rows, labels, arguments.batch),
            "robal": lambda: train_robal(arguments.model, rows, labels, arguments.batch),
        },
        "real tokens/s",
    )


def bench_predict(arguments: argparse.Namespace) -> None:
    """Interleaved rounds of the pipeline, the checkpoint and, if given, the int8 graph of a bundle."""
    dataset = read_dataset(arguments.data, _options(arguments), ONE)
    chosen = np.random.default_rng(0).permutation(len(dataset.rows))[: arguments.rows]
    texts = [str(dataset.rows[index].text) for index in chosen]
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    answers: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "texts.jsonl"
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")

        def theirs(batch: int) -> float:
            started = time.perf_counter()
            answers["pipeline"] = [answer["label"] for answer in pipe(texts, batch_size=batch, truncation=True)]
            return len(texts) / (time.perf_counter() - started)

        def ours(name: str, folder: Path, precision: str) -> float:
            scorer, out = open_scorer(folder, precision), Path(scratch) / f"{name}.jsonl"
            started = time.perf_counter()
            write_predictions(scorer, source, DataOptions(), out)
            seconds = time.perf_counter() - started
            answers[name] = [json.loads(line)["label"] for line in out.read_text("utf-8").splitlines()]
            return len(texts) / seconds

        contenders: dict[str, Callable[[], float]] = {
            "pipeline-1": lambda: theirs(1),
            "pipeline-32": lambda: theirs(32),
            "robal-fp32": lambda: ours("robal-fp32", arguments.model, "fp32"),
        }
        if arguments.bundle:
            contenders["robal-onnx-fp32"] = lambda: ours("robal-onnx-fp32", arguments.bundle, "fp32")
            contenders["robal-int8"] = lambda: ours("robal-int8", arguments.bundle, "int8")
        _rounds(arguments.rounds, contenders, "texts/s")
    for name, given in answers.items():
        equal = np.mean([a == b for a, b in zip(given, answers["pipeline"], strict=True)])
        print(f"{name}: {equal:.4f} of the labels as the pipeline's")


def _rounds(rounds: int, contenders: dict[str, Callable[[], float]], unit: str) -> None:
    """Run, print medians and ratios to the best of the peers (those that are not robal's)."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            seen[name].append(run())
    peers = [values for name, values in seen.items() if not name.startswith("robal")]
    best = max(peers, key=statistics.median)
    for name, values in seen.items():
        ratios = [mine / theirs for mine, theirs in zip(values, best, strict=True)]
        print(
            f"{name:16} {statistics.median(values):10,.1f} {unit}   x {statistics.median(ratios):.2f} of the best peer "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


def _options(arguments: argparse.Namespace) -> DataOptions:
    if arguments.columns is None:
        return DataOptions()
    text, label = arguments.columns.split(",")
    return DataOptions(text_column=text, label_column=label, header=not arguments.no_header)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    for name, run in (("train", bench_train), ("predict", bench_predict)):
        kind = kinds.add_parser(name)
        kind.set_defaults(run=run)
        kind.add_argument("data", type=Path)
        kind.add_argument("model", type=Path)
        kind.add_argument("--rounds", type=int, default=3)
        kind.add_argument("--columns", help="TEXT,LABEL")
        kind.add_argument("--no-header", action="store_true")
        if name == "train":
            kind.add_argument("--steps", type=int, default=12)
            kind.add_argument("--batch", type=int, default=32)
        else:
            kind.add_argument("--bundle", type=Path)
            kind.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, transformers {transformers.__version__}")
    arguments.run(arguments)


if __name__ == "__main__":
    main()
