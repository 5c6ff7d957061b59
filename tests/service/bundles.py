"""A real bundle with a tiny graph that misbehaves on request, by words in the text.

The graph adds up one row per token and multiplies by a matrix, so that the expected logits are easy to compute with
numpy. Special words: ``nan`` gives logits that are not numbers, ``broken`` has an id beyond the table, so that
onnxruntime raises, and each ``slow`` costs about a tenth of a second.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from contract.manifest import Graph, Manifest, TensorSpec, save_manifest
from contract.storage import sha256_file, write_json

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "good", "bad", "film", "the", "nan", "slow", "broken"]
ROWS = len(WORDS) - 1  # "broken" has none
HIDDEN = 5
SLOW_SIZE = 400
SLOW_ROUNDS = 40


def word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def tables(labels: int) -> tuple[np.ndarray, np.ndarray]:
    """The embedding (ROWS, HIDDEN) and the classifier (HIDDEN, labels)."""
    random = np.random.default_rng(7)
    embedding = random.normal(size=(ROWS, HIDDEN)).astype(np.float32)
    embedding[WORDS.index("nan")] = np.nan
    return embedding, random.normal(size=(HIDDEN, labels)).astype(np.float32)


def expected_logits(text: str | tuple[str, str], labels: int = 2) -> np.ndarray:
    embedding, classifier = tables(labels)
    sides = [
        [WORDS.index(w) if w in WORDS else 3 for w in side.split()]
        for side in ([text] if isinstance(text, str) else text)
    ]
    ids = [0, *sides[0], 2] + ([2, *sides[1], 2] if len(sides) == 2 else [])
    return embedding[ids].sum(0) @ classifier


def _graph(labels: int) -> onnx.ModelProto:
    embedding, classifier = tables(labels)
    constants = {
        "embedding": embedding,
        "classifier": classifier,
        "slow_id": np.int64(WORDS.index("slow")),
        "rounds": np.int64(SLOW_ROUNDS),
        "square": np.full((SLOW_SIZE, SLOW_SIZE), 1 / SLOW_SIZE, np.float32),
        "axis": np.array([1], np.int64),
        "last": np.array([2], np.int64),
        "zero": np.float32(0),
    }
    state = ("FLOAT", [SLOW_SIZE, SLOW_SIZE])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["go_on"]),
            helper.make_node("MatMul", ["state", "square"], ["next"]),
        ],
        "round",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, state[1]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, state[1]),
        ],
    )
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask3"]),
        helper.make_node("Cast", ["mask3"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "real"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "axis"], ["pooled"], keepdims=0),
        helper.make_node("Equal", ["input_ids", "slow_id"], ["is_slow"]),
        helper.make_node("Cast", ["is_slow"], ["slow_ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["slow_ones"], ["slow_count"], keepdims=0),
        helper.make_node("Mul", ["slow_count", "rounds"], ["trips"]),
        helper.make_node("Loop", ["trips", "", "square"], ["end"], body=body),
        helper.make_node("ReduceMax", ["end"], ["top"], keepdims=0),
        helper.make_node("Mul", ["top", "zero"], ["nothing"]),
        helper.make_node("MatMul", ["pooled", "classifier"], ["scores"]),
        helper.make_node("Add", ["scores", "nothing"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [
            helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "seq"])
            for n in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", labels])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def word_bundle(
    folder: Path,
    *,
    labels: tuple[str, ...] = ("negative", "positive"),
    problem_type: str = "single_label_classification",
    max_length: int = 16,
) -> Path:
    folder.mkdir(parents=True)
    onnx.save(_graph(len(labels)), folder / "model.onnx")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    write_json(folder / "config.json", {"model_type": "roberta"})
    inputs = tuple(TensorSpec(name=n, dtype="int64", axes=("batch", "seq")) for n in ("input_ids", "attention_mask"))
    save_manifest(
        folder,
        Manifest(
            robal_version="0.1.0",
            name="words",
            family="roberta",
            problem_type=problem_type,  # type: ignore[arg-type]
            labels=labels,
            max_length=max_length,
            pad_token_id=1,
            type_vocab_size=1,
            inputs=inputs,
            outputs=(TensorSpec(name="logits", dtype="float32", axes=("batch", len(labels))),),
            graphs=(
                Graph(
                    precision="fp32",
                    file="model.onnx",
                    weights=(),
                    opset=18,
                    size_bytes=(folder / "model.onnx").stat().st_size,
                ),
            ),
            parameters=ROWS * HIDDEN + HIDDEN * len(labels),
            unique_parameters=ROWS * HIDDEN + HIDDEN * len(labels),
            files={path.name: sha256_file(path) for path in sorted(folder.iterdir())},
        ),
    )
    return folder
