"""Each gate is broken on purpose: what it is there to catch must stop it, with the figure in the message."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from contract.errors import GateFailed
from encoders.heads import SequenceClassifier
from encoders.training import count_parameters
from export import verify
from export.graph import input_specs, output_specs
from tests.export.parts import GRAPH, WEIGHTS, grid, native, write_graph
from tests.tiny import tiny_config, tiny_model


@pytest.fixture
def model() -> SequenceClassifier:
    return tiny_model(tiny_config("albert", max_length=20))


@pytest.fixture
def folder(tmp_path: Path, model: SequenceClassifier) -> Path:
    write_graph(model, tmp_path)
    return tmp_path


def edit(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    proto = onnx.load(folder / GRAPH, load_external_data=False)
    change(proto)
    (folder / GRAPH).write_bytes(proto.SerializeToString())


def storage(folder: Path, model: SequenceClassifier) -> None:
    verify.check_storage(folder, GRAPH, [WEIGHTS], count_parameters(model)[1])


def interface(folder: Path, model: SequenceClassifier) -> None:
    session = verify.open_session(folder / GRAPH)
    verify.check_interface(session, input_specs(model.config), output_specs(model.config))


def values(folder: Path, model: SequenceClassifier) -> None:
    session = verify.open_session(folder / GRAPH)
    verify.check_values(session, lambda inputs: native(model, inputs), grid(model))


def test_a_good_graph_passes_every_gate(folder: Path, model: SequenceClassifier) -> None:
    storage(folder, model)
    interface(folder, model)
    values(folder, model)


# storage


def copy_a_shared_weight(proto: onnx.ModelProto) -> None:
    """What optimizers do to ALBERT: the second user of a shared weight gets a copy of its own."""
    users = [node for node in proto.graph.node if "encoder.ffn.0.up.weight" in node.input]
    assert len(users) == 3
    weight = next(tensor for tensor in proto.graph.initializer if tensor.name == "encoder.ffn.0.up.weight")
    copy = proto.graph.initializer.add()
    copy.CopyFrom(weight)
    copy.name = "copy"
    users[1].input[1] = "copy"


def test_a_copied_weight_is_counted(folder: Path, model: SequenceClassifier) -> None:
    edit(folder, copy_a_shared_weight)
    values(folder, model)  # the copy computes the same, so nothing else would notice
    stored = count_parameters(model)[1] + 20 * 37
    with pytest.raises(GateFailed, match=rf"stores {stored:,} parameters .* a shared weight was copied"):
        storage(folder, model)


def test_a_lost_weight_is_counted(folder: Path, model: SequenceClassifier) -> None:
    def lose(proto: onnx.ModelProto) -> None:
        last = next(tensor for tensor in proto.graph.initializer if tensor.name == "classifier.bias")
        del last.external_data[:]
        last.data_location = onnx.TensorProto.DEFAULT
        last.raw_data = bytes(8)

    edit(folder, lose)
    with pytest.raises(GateFailed, match="or one is missing"):
        storage(folder, model)


def test_a_file_with_more_than_the_weights_is_too_large(folder: Path, model: SequenceClassifier) -> None:
    with (folder / WEIGHTS).open("ab") as handle:
        handle.write(bytes(200_000))
    with pytest.raises(GateFailed, match=r"take [\d,]+ bytes; [\d,]+ bytes of unique parameters allow [\d,]+\."):
        storage(folder, model)


@pytest.mark.parametrize("kind", ["Identity", "Transpose"])
def test_a_node_between_a_weight_and_its_use_is_found(folder: Path, model: SequenceClassifier, kind: str) -> None:
    def hide(proto: onnx.ModelProto) -> None:
        name = "encoder.attention.0.query.weight"
        for node in proto.graph.node:
            node.input[:] = ["hidden" if value == name else value for value in node.input]
        proto.graph.node.insert(0, onnx.helper.make_node(kind, [name], ["hidden"], name="hide"))

    edit(folder, hide)
    with pytest.raises(GateFailed, match=r"Identity or Transpose: 'encoder\.attention\.0\.query\.weight'"):
        storage(folder, model)


def test_what_the_onnx_checker_refuses_is_refused(folder: Path, model: SequenceClassifier) -> None:
    edit(folder, lambda proto: proto.graph.node.reverse())
    with pytest.raises(GateFailed, match="the ONNX checker refuses") as caught:
        storage(folder, model)
    assert "\n" not in str(caught.value)


def test_what_onnxruntime_cannot_load_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"")
    with pytest.raises(GateFailed, match="onnxruntime cannot load") as caught:
        verify.open_session(folder / GRAPH)
    assert "\n" not in str(caught.value)


# interface


def rename_input(proto: onnx.ModelProto) -> None:
    proto.graph.input[1].name = "attention_masks"
    for node in proto.graph.node:
        node.input[:] = ["attention_masks" if value == "attention_mask" else value for value in node.input]


def fix_batch(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def rename_axis(proto: onnx.ModelProto) -> None:
    proto.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "length"


def narrow_type(proto: onnx.ModelProto) -> None:
    proto.graph.input[2].type.tensor_type.elem_type = onnx.TensorProto.INT32


def more_outputs(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(onnx.helper.make_tensor_value_info("pooler.Tanh.1", onnx.TensorProto.FLOAT, None))


def fewer_inputs(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.input[:] = ["input_ids" if value == "token_type_ids" else value for value in node.input]
    del proto.graph.input[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_input, r"inputs are 'attention_masks', .*; declared are 'attention_mask',"),
        (fewer_inputs, r"inputs are 'attention_mask', 'input_ids'; declared are .*'token_type_ids'"),
        (more_outputs, r"outputs are 'logits', 'pooler.Tanh.1'; declared are 'logits'"),
        (fix_batch, r"input 'input_ids' is \('tensor\(int64\)', \(1, 'seq'\)\); declared is .*\('batch', 'seq'\)"),
        (rename_axis, r"input 'token_type_ids' is .*'length'"),
        (narrow_type, r"input 'token_type_ids' is \('tensor\(int32\)'"),
    ],
)
def test_another_interface_than_the_declared_one_is_refused(
    folder: Path, model: SequenceClassifier, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    edit(folder, change)
    with pytest.raises(GateFailed, match=message):
        interface(folder, model)


# values


def scale_a_weight(folder: Path) -> None:
    weights = np.fromfile(folder / WEIGHTS, np.float32)
    weights[: 11 * 331] *= 1.01  # the word embeddings
    weights.tofile(folder / WEIGHTS)


def poison(folder: Path) -> None:
    weights = np.fromfile(folder / WEIGHTS, np.float32)
    weights[-1] = np.nan
    weights.tofile(folder / WEIGHTS)


def ignore_the_mask(folder: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        where = next(node for node in proto.graph.node if node.op_type == "Where")
        where.input[1] = where.input[2]

    edit(folder, change)


def ignore_the_types(folder: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.node.insert(0, onnx.helper.make_node("Sub", ["token_type_ids", "token_type_ids"], ["zeros"]))
        for node in list(proto.graph.node)[1:]:
            node.input[:] = ["zeros" if value == "token_type_ids" else value for value in node.input]

    edit(folder, change)


def another_gelu(folder: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == "Gelu":
                node.attribute[0].s = b"none"

    edit(folder, change)


def limit_the_length(folder: Path) -> None:
    """Right for short texts, such as the author's examples."""

    def change(proto: onnx.ModelProto) -> None:
        node = next(node for node in proto.graph.node if "position" in node.input[0])
        for name, value in (("zero", [0]), ("six", [6])):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
        cut = onnx.helper.make_node("Slice", [node.input[0], "zero", "six"], ["short"], name="short")
        proto.graph.node.insert(0, cut)
        node.input[0] = "short"

    edit(folder, change)


@pytest.mark.parametrize("change", [scale_a_weight, poison, ignore_the_mask, ignore_the_types, another_gelu])
def test_other_logits_are_refused(folder: Path, model: SequenceClassifier, change: Callable[[Path], None]) -> None:
    change(folder)
    interface(folder, model)  # which cannot notice
    with pytest.raises(GateFailed, match=r"at batch \d, length \d+, \w+ the graph's logits differ .* by (\d|nan)"):
        values(folder, model)


def test_a_length_that_does_not_work_is_refused(folder: Path, model: SequenceClassifier) -> None:
    limit_the_length(folder)
    with pytest.raises(GateFailed, match=r"at batch 1, length 17, full onnxruntime cannot run the exported graph"):
        values(folder, model)


def test_positions_that_count_padding_are_refused(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("roberta", max_length=20))
    write_graph(model, tmp_path)

    def count_padding(proto: onnx.ModelProto) -> None:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(-1), "never"))
        equal = next(node for node in proto.graph.node if node.name == "embeddings.Equal.1")
        equal.input[1] = "never"

    edit(tmp_path, count_padding)
    with pytest.raises(GateFailed, match="differ"):
        values(tmp_path, model)


def test_logits_of_another_shape_are_refused(folder: Path, model: SequenceClassifier) -> None:
    session = verify.open_session(folder / GRAPH)
    with pytest.raises(GateFailed, match=r"gives logits \(1, 2\) and the model \(1, 3\)"):
        verify.check_values(session, lambda inputs: np.zeros((len(inputs["input_ids"]), 3), np.float32), grid(model))


class Echo:
    """A session that answers with the reference's logits plus a difference."""

    def __init__(self, logits: float, difference: float) -> None:
        self.logits, self.difference = logits, difference

    def run(self, _: object, inputs: verify.Inputs) -> list[verify.Logits]:
        return [self.reference(inputs) + np.float32(self.difference)]

    def reference(self, inputs: verify.Inputs) -> verify.Logits:
        return np.full((len(inputs["input_ids"]), 2), self.logits, np.float32)


@pytest.mark.parametrize(
    ("logits", "difference", "passes"),
    [
        (1.0, 0.9e-4, True),
        (1.0, 1.1e-4, False),
        (-9.0, 1.1e-4, False),
        (1000.0, 0.9e-2, True),  # float32 itself is not finer than 6e-5 up there
        (1000.0, 1.1e-2, False),
        (1.0, np.nan, False),
        (1.0, np.inf, False),
    ],
)
def test_the_limit_is_the_stated_one(model: SequenceClassifier, logits: float, difference: float, passes: bool) -> None:
    session = Echo(logits, difference)
    if passes:
        verify.check_values(session, session.reference, grid(model))
    else:
        with pytest.raises(GateFailed, match="differ"):
            verify.check_values(session, session.reference, grid(model))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_broken_itself_is_told_from_a_broken_graph(model: SequenceClassifier, value: float) -> None:
    session = Echo(value, 0.0)
    with pytest.raises(GateFailed, match="the model itself gives logits that are no finite numbers"):
        verify.check_values(session, session.reference, grid(model))


# the grid


def test_the_grid_holds_what_requests_hold(model: SequenceClassifier) -> None:
    cases = dict(grid(model))
    shapes = {inputs["input_ids"].shape for inputs in cases.values()}
    assert shapes == {(batch, seq) for batch in (1, 3, 8) for seq in (1, 2, 5, 17, 20)}
    for name, inputs in cases.items():
        ids, mask, types = inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]
        assert ids.dtype == mask.dtype == types.dtype == np.int64
        assert mask.any(axis=1).all(), name
        assert (ids[mask == 1] != 0).all(), name  # real tokens, and not only a few of them
        assert ids.max() <= 330
        assert types.max() <= 1
    everything = np.concatenate([inputs["input_ids"].ravel() for inputs in cases.values()])
    assert len(set(everything.tolist())) > 250
    ragged = cases["batch 8, length 17, ragged"]["attention_mask"].sum(1)
    assert ragged[0] == 17
    assert ragged[-1] == 1
    holes = cases["batch 8, length 17, scattered"]
    assert (holes["input_ids"][holes["attention_mask"] == 0] != 0).any()
    assert (holes["input_ids"][holes["attention_mask"] == 0] == 0).any()


@pytest.mark.parametrize("max_length", [1, 2, 4, 17, 18, 600])
def test_the_longest_length_is_always_in_the_grid_and_nothing_beyond(max_length: int) -> None:
    config = tiny_config("roberta", max_length=max_length)
    tested = {seq for _, seq, _ in grid(tiny_model(config)).shapes}
    assert max(tested) == max_length
    assert tested - {max_length} == {length for length in verify.LENGTHS if length < max_length}
