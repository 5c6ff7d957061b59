"""The emitted graph computes what the native module computes, for every architecture that the module can be."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from contract.scores import PROBLEM_TYPES
from encoders.config import ACTIVATIONS
from encoders.sharing import schedule
from encoders.training import count_parameters
from export import verify
from tests.export.parts import GRAPH, WEIGHTS, fused_operators, grid, native, operators, write_graph
from tests.tiny import tiny_config, tiny_model

FAMILIES = ("bert", "roberta", "albert")
SHARING = ("all", "attention", "ffn", "none")

ARCHITECTURES: dict[str, dict[str, Any]] = {
    **{
        f"{family}-{sharing}-{groups}-groups-{inner}-inner": {
            "family": family,
            "layer_sharing": sharing,
            "num_hidden_layers": 3,
            "num_hidden_groups": groups,
            "inner_group_num": inner,
        }
        for family, sharing, (groups, inner) in itertools.product(FAMILIES, SHARING, ((1, 1), (2, 1), (2, 2)))
    },
    **{f"{family}-factorised": {"family": family, "embedding_size": 7} for family in FAMILIES},
    "albert-wide": {"family": "albert", "embedding_size": 20},
    "albert-without-projection": {"family": "albert", "embedding_size": 20, "embedding_projection": False},
    "bert-narrowing": {"family": "bert", "embedding_size": 31},
    **{f"{family}-{act}": {"family": family, "hidden_act": act} for family in FAMILIES for act in ACTIVATIONS},
    "roberta-with-types": {"family": "roberta", "type_vocab_size": 3},
    "bert-without-types": {"family": "bert", "type_vocab_size": 1},
    "roberta-pad-0": {"family": "roberta", "pad_token_id": 0},
    "roberta-pad-5": {"family": "roberta", "pad_token_id": 5, "max_position_embeddings": 40},
    "bert-pad-7": {"family": "bert", "pad_token_id": 7},
    "one-layer": {"family": "bert", "num_hidden_layers": 1},
    "one-head": {"family": "albert", "num_attention_heads": 1},
    **{
        kind: {
            "family": "albert",
            "problem_type": kind,
            "labels": ("only",) if kind == "regression" else tuple("abcde"),
        }
        for kind in PROBLEM_TYPES
    },
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_the_native_module_and_nothing_is_stored_twice(tmp_path: Path, name: str) -> None:
    model = tiny_model(tiny_config(**{"max_length": 19, **ARCHITECTURES[name]}), seed=len(name))
    path = write_graph(model, tmp_path)
    _, unique = count_parameters(model)
    figures = verify.check_storage(tmp_path, GRAPH, [WEIGHTS], unique)
    assert figures["stored_weights"] == len(list(model.parameters()))
    session = verify.open_session(path)
    figures = verify.check_values(session, lambda inputs: native(model, inputs), grid(model))
    assert figures["max_abs_logit_difference"] <= 2e-5
    assert figures["max_abs_logit"] > 0.05  # there was something to compare


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shape_of_encoder_has_an_equal_graph(tmp_path: Path, data: st.DataObject) -> None:
    layers = data.draw(st.integers(1, 4), "layers")
    heads = data.draw(st.integers(1, 3), "heads")
    family = data.draw(st.sampled_from(FAMILIES), "family")
    config = tiny_config(
        family,
        labels=[f"label {i}" for i in range(data.draw(st.integers(2, 4), "labels"))],
        max_length=data.draw(st.integers(1, 20), "max_length"),
        num_hidden_layers=layers,
        num_hidden_groups=data.draw(st.integers(1, layers), "groups"),
        inner_group_num=data.draw(st.integers(1, 2), "inner"),
        layer_sharing=data.draw(st.sampled_from(SHARING), "sharing"),
        num_attention_heads=heads,
        hidden_size=heads * data.draw(st.integers(1, 5), "head_dim"),
        embedding_size=data.draw(st.integers(1, 9), "embedding_size"),
        embedding_projection=True,
        intermediate_size=data.draw(st.integers(1, 9), "ffn"),
        hidden_act=data.draw(st.sampled_from(ACTIVATIONS), "act"),
        type_vocab_size=data.draw(st.integers(1, 3), "types"),
        layer_norm_eps=data.draw(st.sampled_from([1e-5, 1e-3]), "eps"),
    )
    model = tiny_model(config, seed=data.draw(st.integers(0, 9), "seed"))
    session = verify.open_session(write_graph(model, tmp_path))
    figures = verify.check_values(session, lambda inputs: native(model, inputs), grid(model))
    assert figures["max_abs_logit_difference"] <= verify.MAX_LOGIT_DIFFERENCE


def test_the_onnx_reference_evaluator_agrees(tmp_path: Path) -> None:
    """Not only onnxruntime: the definition of the operators, as onnx itself wrote it down."""
    model = tiny_model(tiny_config("albert", max_length=9))
    evaluator = ReferenceEvaluator(str(write_graph(model, tmp_path)))
    for name, inputs in grid(model):
        (found,) = evaluator.run(None, dict(inputs))
        np.testing.assert_allclose(found, native(model, inputs), atol=2e-5, rtol=0, err_msg=name)


def test_only_standard_operators_are_used(tmp_path: Path) -> None:
    model = onnx.load(write_graph(tiny_model(tiny_config()), tmp_path), load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
    assert model.ir_version == 9
    assert {node.domain for node in model.graph.node} == {""}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_onnxruntime_fuses_every_block_at_load_time(tmp_path: Path, family: str, sharing: str, act: str) -> None:
    config = tiny_config(family, layer_sharing=sharing, num_hidden_layers=4, num_hidden_groups=2, hidden_act=act)
    path = write_graph(tiny_model(config), tmp_path)
    blocks = len(schedule(config))
    found = fused_operators(path)
    assert found["LayerNormalization"] == 2 * blocks + 1
    assert found["SkipLayerNormalization"] == 0  # slower on a CPU than Add and LayerNormalization
    assert found["Gelu"] == blocks
    assert found["FusedMatMul"] == blocks  # the scale of the scores
    linears = 6 * blocks + (config.embedding_size != config.hidden_size) + 2  # and pooler, classifier
    assert found["Gemm"] + found["FusedGemm"] == linears  # each with its bias, the pooler with its tanh
    assert found["MatMul"] == blocks  # of attention weights and values
    # and what was shared stays shared: no weight was copied on the way
    assert path.with_suffix(".fused.onnx").stat().st_size < 1.1 * sum(
        (tmp_path / name).stat().st_size for name in (GRAPH, WEIGHTS)
    )


def test_the_last_block_computes_the_first_token_only(tmp_path: Path) -> None:
    """Arithmetic that no logit depends on is not in the graph."""
    model = tiny_model(tiny_config("bert", num_hidden_layers=2, max_length=9))
    path = write_graph(model, tmp_path)
    proto = onnx.load(path)
    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info("block.1.ffn.MatMul.1"))
    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info("block.0.ffn.MatMul.1"))
    session = verify.onnxruntime.InferenceSession(proto.SerializeToString())
    inputs = {name: np.ones((3, 9), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    _, last, before = session.run(None, inputs)
    assert last.shape == (3, 37)
    assert before.shape == (27, 37)


def test_padding_is_not_computed(tmp_path: Path) -> None:
    """Linear layers see the real tokens, and column 0, which is read in any case; counted in rows, not in seconds."""
    model = tiny_model(tiny_config("roberta", num_hidden_layers=2, max_length=9))
    proto = onnx.load(write_graph(model, tmp_path))
    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info("block.0.ffn.MatMul.1"))
    session = verify.onnxruntime.InferenceSession(proto.SerializeToString())
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    _, wide = session.run(None, {"input_ids": np.where(mask, 7, 1), "attention_mask": mask})
    assert wide.shape == (6 + 2 + (1 + 3) + 1, 37)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_without_a_real_token_is_finite_and_disturbs_nobody(tmp_path: Path, family: str) -> None:
    model = tiny_model(tiny_config(family, max_length=9))
    session = verify.open_session(write_graph(model, tmp_path))
    _, inputs = list(grid(model))[4]
    alone = {name: array[:1] for name, array in inputs.items()}
    pair = {name: np.concatenate([array[:1], np.zeros_like(array[:1])]) for name, array in inputs.items()}
    (found,) = session.run(None, pair)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:1], session.run(None, alone)[0], atol=1e-6)
    np.testing.assert_allclose(found[:1], native(model, pair)[:1], atol=2e-5)


def test_a_text_longer_than_the_positions_is_refused_not_answered(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert", max_length=9))
    session = verify.open_session(write_graph(model, tmp_path))
    inputs = {name: np.ones((1, 10), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    with pytest.raises(Exception, match="Gather"):  # onnxruntime has no public exception class
        session.run(None, inputs)


def test_the_node_list_does_not_grow_with_sharing(tmp_path: Path) -> None:
    """The same network, shared or not, is the same list of operators."""
    counts = [
        operators(write_graph(tiny_model(tiny_config("albert", layer_sharing=kind)), tmp_path / kind))
        for kind in SHARING
    ]
    assert all(count == counts[0] for count in counts)
