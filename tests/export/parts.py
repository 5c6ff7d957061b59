"""What several tests of this room need: a model's graph on disk, and logits of either side."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from encoders.heads import SequenceClassifier
from export.graph import classifier_graph, input_specs, output_specs
from export.verify import Grid, Inputs, Logits

GRAPH, WEIGHTS = "model.onnx", "model.onnx_data"


def write_graph(model: SequenceClassifier, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    classifier_graph(model).save(
        folder,
        graph_file=GRAPH,
        weights_file=WEIGHTS,
        inputs=input_specs(model.config),
        outputs=output_specs(model.config),
    )
    return folder / GRAPH


def native(model: SequenceClassifier, inputs: Inputs) -> Logits:
    with torch.inference_mode():
        return np.asarray(model(**{name: torch.from_numpy(array) for name, array in inputs.items()}))


def grid(model: SequenceClassifier) -> Grid:
    config = model.config
    return Grid(
        vocab_size=config.vocab_size,
        pad_token_id=config.pad_token_id,
        type_vocab_size=config.type_vocab_size,
        max_length=config.max_length,
        inputs=tuple(spec.name for spec in input_specs(config)),
    )


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def fused_operators(path: Path) -> Counter[str]:
    """Operators after onnxruntime's load-time fusions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path.with_suffix(".fused.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return operators(path.with_suffix(".fused.onnx"))
