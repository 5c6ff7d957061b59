"""The serving engine beside OpenVINO and CTranslate2, on the mixed traffic of ``benchmarks/engine.py``.

    pip install openvino nncf ctranslate2
    python -m benchmarks.engine_peers BUNDLE --baseline DIR [--threads 2] [--rounds 5]

BUNDLE and DIR are those of ``benchmarks/engine.py``: the peers run the same shape with random weights from DIR. Each
gets the texts as they arrive, 16 at a time, and one by one; its faster way counts. OpenVINO runs optimum's export, in
int8 as NNCF quantizes it (its scales come from random ids: good for speed only). CTranslate2 knows BERT and RoBERTa,
takes padding out by itself and has no classification head, which is a little less work than ours. A first pass over the
traffic does not count, so that OpenVINO has seen each shape before.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from benchmarks.engine import BATCH, measure, median_ms, mixed_lengths, ortmodel, ratio, texts
from contract.encoding import EncodedText, padded
from contract.manifest import load_manifest
from service.engine import OnnxEngine

Batches = Sequence[Sequence[EncodedText]]
Run = Callable[[Sequence[EncodedText]], object]
CALIBRATION_TEXTS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    manifest = load_manifest(options.bundle)
    config = json.loads((options.bundle / "config.json").read_text())
    random = np.random.default_rng(0)
    traffic = texts(random, mixed_lengths(random))
    arrival = [traffic[at : at + BATCH] for at in range(0, len(traffic), BATCH)]
    alone = [[text] for text in traffic]
    ortmodel(options.baseline, config, options.threads)  # makes the exports if they are not there
    peers: dict[str, Run] = {}
    for precision in ("fp32", "int8"):
        peers |= {f"OpenVINO {precision}": openvino(options.baseline, traffic, precision, options.threads)}
        if manifest.family != "albert":
            peers |= {f"CTranslate2 {precision}": ctranslate2(options, precision)}
    runs: dict[str, Callable[[], object]] = {}
    for precision in ("fp32", "int8"):
        engine = OnnxEngine(options.bundle, manifest, precision=precision, threads=options.threads)
        runs[f"robal {precision}"] = over(arrival, engine.run)
    for name, run in peers.items():
        runs[f"{name}, 16 at a time"] = over(arrival, run)
        runs[f"{name}, one by one"] = over(alone, run)
    seconds = measure(runs, options.rounds)
    print(f"## {manifest.name}, {options.threads} threads, {len(traffic)} texts of mixed lengths\n")
    print("| engine | ms | its faster way over robal in the same precision |\n| --- | ---: | ---: |")
    for precision in ("fp32", "int8"):
        ours = seconds[f"robal {precision}"]
        print(f"| robal {precision} | {median_ms(ours)} | |")
        for name in (name for name in peers if name.endswith(precision)):
            ways = [way for way in seconds if way.startswith(name)]
            best = min(ways, key=lambda way: statistics.median(seconds[way]))
            print(f"| {best} | {median_ms(seconds[best])} | {ratio(seconds[best], ours)} |")


def over(batches: Batches, run: Run) -> Callable[[], object]:
    return lambda: [run(batch) for batch in batches]


def openvino(folder: Path, traffic: Sequence[EncodedText], precision: str, threads: int) -> Run:
    """Optimum's export on OpenVINO's own runtime."""
    import openvino as ov

    core = ov.Core()
    model = core.read_model(folder / "onnx" / "model.onnx")
    names = [tensor.get_any_name() for tensor in model.inputs]

    def arrays(batch: Sequence[EncodedText]) -> dict[str, Any]:
        filled = padded(batch, 1)
        return {name: filled[name] for name in names}

    if precision == "int8":
        import nncf

        samples = nncf.Dataset([arrays([text]) for text in traffic[:CALIBRATION_TEXTS]])
        model = nncf.quantize(model, samples, model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION_TEXTS)
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", settings)
    return lambda batch: compiled(arrays(batch))


def ctranslate2(options: argparse.Namespace, precision: str) -> Run:
    """The same shape, converted by CTranslate2 to its own format."""
    import ctranslate2 as ct2

    kind = {"fp32": "float32", "int8": "int8"}[precision]
    out = options.baseline / f"ctranslate2-{kind}"
    if not out.exists():
        invented_tokenizer(options.baseline / "torch")
        ct2.converters.TransformersConverter(str(options.baseline / "torch")).convert(str(out), quantization=kind)
    encoder = ct2.Encoder(str(out), compute_type=kind, intra_threads=options.threads)
    return lambda batch: np.asarray(encoder.forward_batch([text.input_ids.tolist() for text in batch]).pooler_output)


def invented_tokenizer(folder: Path) -> None:
    """A word for each row of the table, because the converter wants as many; no text is ever encoded with it."""
    words = json.loads((folder / "config.json").read_text())["vocab_size"]
    Tokenizer(models.WordLevel({f"w{row}": row for row in range(words)}, unk_token="w3")).save(
        str(folder / "tokenizer.json")
    )
    roles = {f"{role}_token": f"w{row}" for row, role in enumerate(("bos", "pad", "eos", "unk"))}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    main()
