"""Real tokens per second of pretraining: robal beside the Hugging Face Trainer, same shape, torch, threads and data.

    python benchmarks/pretrain_speed.py STORE [--shape mini] [--protocol lines,blocks] [--rounds 3] [--minutes 20]

STORE is made by ``robal pretrain prepare --tokenizer bpe``; a store with one paragraph a document
(``--document-per-line``) has documents of varying length. Two protocols:

    lines     documents of varying length, at most 128 tokens. The Trainer pads each batch to its longest, as
              DataCollatorForLanguageModeling does; robal packs.
    blocks    the Trainer's best case: text concatenated into full blocks (run_mlm's group_texts), so nothing is padded.
              robal trains on full-sentences of the same length.

Both train RobertaForMaskedLM's shape with its dropout, mask 15 % dynamically, clip, and step a fused AdamW. Each round
trains every contender for some steps in a process of its own, one after the other, so that a change of the machine hits
all; the first steps of a process are dropped. Reported: median over rounds of real (non-padding) tokens per second, the
ratio to the Trainer with the range over rounds, and the share of what plain matrix products reach.

Contenders: ``robal`` and ``trainer`` at equal dtype (fp32), ``robal-default`` (bf16, left out where the hardware has
none), ``robal-compile``, ``trainer-compile``, and ``trainer-grouped`` (batches of like length, lines only).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from encoders.precision import choose_precision, training_device
from encoders.presets import preset
from pretrain.flops import token_flops
from pretrain.layout import Format
from pretrain.telemetry import measure_peak

WINDOW = 128
SHAPES = {"base": "roberta-base", "mini": "mini-roberta"}
BATCH = {"base": 16, "mini": 64}
"""Sequences in an update."""
FORMATS: dict[str, Format] = {"lines": "doc-sentences", "blocks": "full-sentences"}
DROPPED_STEPS = 3


def _view(store: str, protocol: str) -> Any:
    from pretrain.store import open_store
    from pretrain.views import View, ViewSettings

    return View(open_store(Path(store)), ViewSettings(format=FORMATS[protocol], max_length=WINDOW))


def run_robal(job: dict[str, Any]) -> dict[str, float]:
    """Train with our loop; the time from the end of the dropped steps to the end of the last one."""
    import numpy as np

    from pretrain.recipes import named
    from pretrain.run import pretrain
    from pretrain.settings import Settings, Upkeep, shape_for, with_changes
    from pretrain.store import open_store

    store = open_store(Path(job["store"]))
    view = _view(job["store"], job["protocol"])
    lengths = view.lengths(view.order(0)(np.arange(min(4096, view.samples))), 0)
    config = replace(shape_for(store, job["shape"]), vocab_size=job["vocab_size"])
    device = training_device()
    recipe = with_changes(
        named("mini-roberta").recipe,
        format=FORMATS[job["protocol"]],
        window=WINDOW,
        batch_size=1,
        steps=10**6,
    )
    # as many samples in an update as the Trainer takes, counted in tokens
    recipe = replace(recipe, batch_size=max(1, round(job["batch"] * float(lengths.mean()) / WINDOW)))
    settings = Settings(
        start=job["shape"],
        config=config,
        recipe=recipe,
        seed=0,
        minutes=job["seconds"] / 60,
        micro_tokens=8192,
        packed=True,
        precision=choose_precision("auto", device, config.hidden_size) if job["dtype"] == "default" else "fp32",
        compiled=job["compile"],
        store=store.fingerprint,
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        care = Upkeep(save_minutes=0.0, heldout_tokens=1, spike_nats=0.0)
        pretrain(settings, care, store, out, device=device, go_on=False, overwrite=False)
        lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    kept = steps[DROPPED_STEPS:]
    if not kept:
        raise SystemExit(f"only {len(steps)} steps in {job['seconds']:.0f} s; give more --minutes or a smaller --batch")
    seconds = kept[-1]["elapsed_s"] - steps[DROPPED_STEPS - 1]["elapsed_s"]
    return {
        "tokens_per_second": sum(line["tokens"] for line in kept) / seconds,
        "steps": len(kept),
        "padding_share": statistics.fmean(line["padding_share"] for line in kept),
        "load_share": sum(line["load_seconds"] for line in kept) / seconds,
        "masked_rate": statistics.fmean(line["masked_rate"] for line in kept),
    }


def run_trainer(job: dict[str, Any]) -> dict[str, float]:
    """Train the same with transformers, on the same samples."""
    import numpy as np
    import transformers
    from tokenizers import Tokenizer
    from torch.utils.data import Dataset

    view = _view(job["store"], job["protocol"])
    samples = view.load(view.order(0)(np.arange(min(view.samples, 20_000))), 0)
    ids = np.split(samples.original_ids(), samples.starts[1:])
    if job["protocol"] == "blocks":  # group_texts of run_mlm.py
        stream = np.concatenate(ids)
        ids = list(stream[: len(stream) // WINDOW * WINDOW].reshape(-1, WINDOW))
    shape = preset(job["shape"])
    vocabulary = view.store.vocabulary
    config = transformers.RobertaConfig(
        vocab_size=job["vocab_size"],
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_position_embeddings,
        type_vocab_size=1,
        layer_norm_eps=shape.layer_norm_eps,
        pad_token_id=vocabulary.pad_id,
        attn_implementation="sdpa",
    )

    class Rows(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(ids)

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            return {"input_ids": ids[index].tolist()}

    class Clock(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.begun = time.perf_counter()
            self.ends: list[float] = []

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.ends.append(time.perf_counter())
            if self.ends[-1] - self.begun > job["seconds"] and len(self.ends) > DROPPED_STEPS + 1:
                control.should_training_stop = True

    class Counting(transformers.DataCollatorForLanguageModeling):
        real: list[int]
        computed: list[int]

        def torch_call(self, examples: Any) -> dict[str, Any]:
            batch = super().torch_call(examples)
            self.real.append(sum(len(example["input_ids"]) for example in examples))
            self.computed.append(batch["input_ids"].numel())
            return dict(batch)

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(Path(job["store"]) / "tokenizer.json")),
        mask_token="<mask>",
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )
    collator = Counting(tokenizer, mlm_probability=0.15)
    collator.real, collator.computed = [], []
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            use_cpu=training_device().type == "cpu",
            per_device_train_batch_size=job["batch"],
            max_steps=10**6,
            optim="adamw_torch_fused",
            learning_rate=1e-3,
            warmup_steps=200,
            max_grad_norm=1.0,
            bf16=False,
            torch_compile=job["compile"],
            group_by_length=job["grouped"],
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=0,
            seed=0,
        )
        trainer = transformers.Trainer(
            model=transformers.RobertaForMaskedLM(config),
            args=arguments,
            train_dataset=Rows(),
            data_collator=collator,
            callbacks=[clock],
        )
        trainer.train()
    steps = len(clock.ends)
    seconds = clock.ends[-1] - clock.ends[DROPPED_STEPS - 1]
    real = sum(collator.real[DROPPED_STEPS:steps])
    return {
        "tokens_per_second": real / seconds,
        "steps": steps - DROPPED_STEPS,
        "padding_share": 1 - real / sum(collator.computed[DROPPED_STEPS:steps]),
    }


def contenders(protocol: str, shape: str) -> dict[str, dict[str, Any]]:
    plain: dict[str, Any] = {"compile": False, "grouped": False, "dtype": "fp32"}
    found = {
        "trainer": {**plain, "side": "trainer"},
        "robal": {**plain, "side": "robal"},
        "trainer-compile": {**plain, "side": "trainer", "compile": True},
        "robal-compile": {**plain, "side": "robal", "compile": True},
    }
    if protocol == "lines":
        found["trainer-grouped"] = {**plain, "side": "trainer", "grouped": True}
    if choose_precision("auto", training_device(), preset(SHAPES[shape]).hidden_size) == "bf16":
        found["robal-default"] = {**plain, "side": "robal", "dtype": "default"}
    return found


def in_process(job: dict[str, Any]) -> dict[str, float]:
    """Run one contender in a fresh process."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, __file__, "--job", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        raise SystemExit(f"{job} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", nargs="?")
    parser.add_argument("--shape", choices=[*SHAPES], default="mini")
    parser.add_argument("--protocol", default="lines,blocks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20.0, help="for everything together")
    parser.add_argument("--batch", type=int, default=0, help="sequences in an update; default: 16 (base) or 64 (mini)")
    parser.add_argument("--vocab-size", type=int, default=0, help="rows of the embedding; default: the preset's")
    parser.add_argument("--only", default="", help="contenders, with commas between")
    parser.add_argument("--out", default="", help="JSON file of all figures")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        print(json.dumps(run_robal(job) if job["side"] == "robal" else run_trainer(job)))
        return
    protocols = options.protocol.split(",")
    shape = SHAPES[options.shape]
    wanted = [name for name in options.only.split(",") if name]
    plan = {p: {n: c for n, c in contenders(p, options.shape).items() if not wanted or n in wanted} for p in protocols}
    processes = options.rounds * sum(map(len, plan.values()))
    peak = measure_peak(training_device(), torch.float32, seconds=2.0)
    vocabulary = options.vocab_size or preset(shape).vocab_size
    print(f"{shape}, V={vocabulary:,}, {torch.get_num_threads()} threads, {peak / 1e9:.0f} GFLOP/s in matrix products")
    figures: dict[str, Any] = {"shape": shape, "peak_flops": peak, "torch": torch.__version__, "protocols": {}}
    for protocol, candidates in plan.items():
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
        for number in range(options.rounds):
            order = list(candidates) if number % 2 == 0 else list(candidates)[::-1]
            for name in order:
                job = {
                    **candidates[name],
                    "store": options.store,
                    "protocol": protocol,
                    "shape": shape,
                    "batch": options.batch or BATCH[options.shape],
                    "vocab_size": vocabulary,
                    "seconds": max(8.0, 60 * options.minutes / processes - 8),
                }
                taken[name].append(in_process(job))
                print(f"  {protocol}, round {number + 1}, {name}: {taken[name][-1]['tokens_per_second']:,.0f} tokens/s")
        figures["protocols"][protocol] = taken
        _tell(protocol, taken, shape, vocabulary, peak)
    if options.out:
        Path(options.out).write_text(json.dumps(figures, indent=2) + "\n")


def _tell(protocol: str, taken: dict[str, list[dict[str, float]]], shape: str, vocabulary: int, peak: float) -> None:
    config = replace(preset(shape), vocab_size=vocabulary)
    print(f"{protocol}:")
    for name, rounds in taken.items():
        rates = [figures["tokens_per_second"] for figures in rounds]
        median = statistics.median(rates)
        is_ours = name.startswith("robal")
        share = median * token_flops(config, length=WINDOW / 2, masked_share=0.15).total / peak
        text = f"  {name:16} {median:10,.0f} tokens/s, padding {rounds[-1]['padding_share']:.0%}"
        if "trainer" in taken and name != "trainer":
            ratios = [ours / theirs["tokens_per_second"] for ours, theirs in zip(rates, taken["trainer"], strict=True)]
            text += f", {statistics.median(ratios):.2f} x trainer ({min(ratios):.2f} to {max(ratios):.2f})"
        if is_ours:
            text += f", {share:.0%} of peak, loading {rounds[-1]['load_share']:.1%}"
        print(text)


if __name__ == "__main__":
    main()
