"""layer_parity names the layer that has the planted fault, that one alone, and nothing where there is none."""

import importlib
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from small_nets import branches, chaotic, sequence
from tiny_onnx import save_onnx

from helpers import faults, native
from helpers.artifacts import require
from helpers.convert import convert_onnx
from helpers.data import arrays, normalize
from helpers.parity import layer_parity, snr
from helpers.runtime import OrtModel

nan, inf = np.nan, np.inf
IMAGES = normalize(arrays(train=False)[0][:5])
NOISE = np.random.default_rng(3).normal(size=(5, 3, 8, 8)).astype(np.float32)

PLACES = {
    ("course", faults.scale_weight): 4, ("course", faults.quantize_weight): 4, ("course", faults.overflow_fp16): 4,
    ("course", faults.drop_bias): 4, ("course", faults.remove_relu): 3,
    ("course", faults.change_padding): 2,
    ("branches", faults.scale_weight): 5, ("branches", faults.wrong_weights): 5,
    ("branches", faults.quantize_weight): 5, ("branches", faults.overflow_fp16): 5, ("branches", faults.drop_bias): 5,
    ("branches", faults.remove_relu): 3, ("branches", faults.change_padding): 3,
}  # fmt: skip
"""(network, fault): in how many layers it can be planted."""
CASES = [
    pytest.param(net, fault, layer, id=f"{net}-{fault.__name__}-{layer}")
    for (net, fault), count in PLACES.items() for layer in range(count)
]  # fmt: skip


@pytest.fixture(scope="module")
def nets(course, tmp_path_factory):
    """{name: (ONNX path, faithful .mnn path, inputs)}."""
    folder = tmp_path_factory.mktemp("nets")
    made = {"branches": branches(folder / "branches.onnx"), "sequence": sequence(folder / "sequence.onnx"),
            "chaotic": chaotic(folder / "chaotic.onnx")}  # fmt: skip
    rng = np.random.default_rng(4)
    inputs = {"branches": NOISE, "sequence": rng.normal(size=(2, 3, 20)), "chaotic": rng.normal(size=(3, 32))}
    found = {name: (path, convert(path), inputs[name].astype(np.float32)) for name, path in made.items()}
    return found | {"course": (course / "mnist_cnn.onnx", course / "mnist_cnn.mnn", IMAGES)}


def convert(path, *options):
    """By the converter itself, in this process: with a child for each, these tests would take a minute."""
    mnn = path.with_suffix(".mnn")
    with native.quietly():
        import _tools

        _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", str(path), "--MNNModel", str(mnn),
                           "--bizCode", "tests", *options])  # fmt: skip
    return mnn


@pytest.fixture
def quick(monkeypatch):
    """layer_parity without child processes."""

    def call(target, *arguments, timeout):
        module, name = target.split(":")
        with native.quietly():
            return getattr(importlib.import_module(module), name)(*arguments), ""

    monkeypatch.setattr("helpers.parity.native", SimpleNamespace(call=call))


@pytest.mark.parametrize(("net", "fault", "layer"), CASES)
def test_the_layer_with_the_fault_is_named_and_no_other(net, fault, layer, nets, tmp_path, quick):
    path, _, inputs = nets[net]
    planted = fault(path, tmp_path / "faulty.onnx", layer)
    half = fault is faults.overflow_fp16
    mnn = convert(planted.path, *(["--fp16"] if half else []))
    report = layer_parity(planted.path if half else path, mnn, inputs)
    assert not report.ok and planted.node in report.first.nodes
    assert len(report.wrong) == 1 and len(report.first.nodes) <= 2
    assert str(report).startswith(f"starts to differ at {report.first.name} (")


@pytest.mark.parametrize(("net", "fault"), PLACES)
def test_no_layer_was_left_out(net, fault, nets, tmp_path):
    with pytest.raises(ValueError, match="There is no layer"):
        fault(nets[net][0], tmp_path / "faulty.onnx", PLACES[net, fault])


@pytest.mark.parametrize("fault", [faults.scale_weight, faults.quantize_weight])
@pytest.mark.parametrize("layer", range(6))
def test_faults_in_matmul_and_1d_convolutions_are_named(fault, layer, nets, tmp_path, quick):
    path, _, inputs = nets["sequence"]
    planted = fault(path, tmp_path / "faulty.onnx", layer)
    report = layer_parity(path, convert(planted.path), inputs)
    assert planted.node in report.first.nodes and len(report.wrong) == 1


@pytest.mark.parametrize("layer", range(3))
def test_a_relu_is_missed_whether_or_not_its_tensor_keeps_its_name(layer, nets, tmp_path, quick):
    path, _, inputs = nets["course"]
    model = onnx.load(path)
    relu = [node for node in model.graph.node if node.op_type == "Relu"][layer]
    relu.op_type = "Identity"
    onnx.save(model, tmp_path / "identity.onnx")
    report = layer_parity(path, convert(tmp_path / "identity.onnx"), inputs)
    assert relu.name in report.first.nodes and len(report.wrong) == 1
    assert report.first.mnn_op == "Convolution"


@pytest.mark.parametrize("layer", range(3))
def test_a_relu_that_only_mnn_has_is_seen_in_its_own_layer(layer, nets, tmp_path, quick):
    path, mnn, inputs = nets["course"]
    without = faults.remove_relu(path, tmp_path / "without.onnx", layer).path
    relu = [node for node in onnx.load(path).graph.node if node.op_type == "Relu"][layer]
    maker = next(node for node in onnx.load(path).graph.node if relu.input[0] in node.output)
    report = layer_parity(without, mnn, inputs)
    assert report.first.nodes == (maker.name,) and len(report.wrong) == 1


def test_a_bias_a_thousand_times_smaller_than_the_signal_is_missed(tmp_path, quick):
    rng = np.random.default_rng(5)
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    bias = np.full(4, 2e-3, np.float32)
    path = save_onnx(
        tmp_path / "small.onnx", [("Conv", ["x", "w", "b"], ["c"]), ("Conv", ["c", "v"], ["y"])],
        {"x": ("float32", ["batch", 3, 8, 8])}, {"y": ("float32", ["batch", 2, 6, 6])},
        {"w": w, "b": bias, "v": rng.normal(size=(2, 4, 1, 1)).astype(np.float32)},
    )  # fmt: skip
    report = layer_parity(path, convert(faults.drop_bias(path, tmp_path / "f.onnx").path), NOISE)
    assert report.first.tensor == "c" and 55 < report.first.own_snr_db < 85


def test_two_faults_are_two_layers(nets, tmp_path, quick):
    path, _, inputs = nets["course"]
    one = faults.drop_bias(path, tmp_path / "one.onnx", 1)
    two = faults.scale_weight(one.path, tmp_path / "two.onnx", 3)
    report = layer_parity(path, convert(two.path), inputs)
    assert [layer.name for layer in report.wrong] == [one.node, two.node]


def test_swapped_outputs_are_both_named(tmp_path, quick):
    rng = np.random.default_rng(6)
    weights = {name: rng.normal(size=(3, 3, 1, 1)).astype(np.float32) for name in "wuv"}

    def model(name, outputs):
        nodes = [("Conv", ["x", "w"], ["c"]), ("Relu", ["c"], ["r"]),
                 ("Conv", ["r", "u"], [outputs[0]]), ("Conv", ["r", "v"], [outputs[1]])]  # fmt: skip
        spec = ("float32", ["batch", 3, 8, 8])
        return save_onnx(tmp_path / name, nodes, {"x": spec}, {"p": spec, "q": spec}, weights)

    report = layer_parity(model("pq.onnx", "pq"), convert(model("qp.onnx", "qp")), NOISE)
    assert [layer.tensor for layer in report.wrong] == ["p", "q"]


def test_a_layer_of_another_shape_is_named_with_it(tmp_path, quick):
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "h": np.ones((4, 2), np.float32)}

    def model(name, pads):
        nodes = [("Conv", ["x", "w"], ["c"], {"pads": pads}), ("Relu", ["c"], ["r"]),
                 ("GlobalAveragePool", ["r"], ["g"]), ("Flatten", ["g"], ["f"]),
                 ("Gemm", ["f", "h"], ["y"])]  # fmt: skip
        return save_onnx(tmp_path / name, nodes, {"x": ("float32", ["batch", 3, 8, 8])},
                         {"y": ("float32", ["batch", 2])}, weights)  # fmt: skip

    report = layer_parity(model("padded.onnx", [1] * 4), convert(model("bare.onnx", [0] * 4)), NOISE)
    assert report.first.nodes == ("c", "r") and report.first.max_abs == inf
    assert "shape 5×4×6×6 in MNN" in str(report)


def test_a_weight_that_is_not_a_number_is_named(nets, tmp_path, quick):
    path, _, inputs = nets["course"]
    planted = faults.scale_weight(path, tmp_path / "nan.onnx", 1, factor=nan)
    report = layer_parity(path, convert(planted.path), inputs)
    assert planted.node in report.first.nodes and report.first.own_snr_db < 0


@pytest.mark.parametrize(("net", "count"), [("course", 1), ("course", 5), ("branches", 5), ("sequence", 2)])
def test_a_faithful_conversion_has_no_wrong_layer(net, count, nets, quick):
    path, mnn, inputs = nets[net]
    report = layer_parity(path, mnn, inputs[:count])
    assert report.ok and report.first is None and report.wrong == () and report.unmatched == ()
    assert str(report).startswith("every layer agrees") and "<--" not in str(report)
    nodes = [node.name or node.output[0] for node in onnx.load(path).graph.node]
    assert set(nodes) == {name for layer in report.layers for name in layer.nodes}


def test_a_batch_1_export_is_fine_in_full_and_half_precision(course, tmp_path, quick):
    path = require("mnist_cnn_batch1.onnx", course)
    assert layer_parity(path, convert(path), IMAGES[:1]).ok
    report = layer_parity(path, convert(path, "--fp16"), IMAGES[:1])
    assert report.ok and max(layer.own_snr_db for layer in report.layers if "Conv" in layer.onnx_op) < 90


def test_rounding_that_a_deep_network_amplifies_is_no_fault(nets, quick):
    report = layer_parity(*nets["chaotic"])
    assert report.ok and report.layers[-1].snr_db < 90


def test_a_mean_that_is_all_rounding_is_no_fault(tmp_path, quick):
    path = save_onnx(
        tmp_path / "mean.onnx",
        [("InstanceNormalization", ["x", "s", "z"], ["n"]), ("ReduceMean", ["n", "axes"], ["y"], {"keepdims": 1})],
        {"x": ("float32", ["batch", 3, 32, 32])}, {"y": ("float32", ["batch", 3, 1, 1])},
        {"s": np.ones(3, np.float32), "z": np.zeros(3, np.float32), "axes": np.array([2, 3])},
    )  # fmt: skip
    inputs = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    report = layer_parity(path, convert(path), inputs)
    assert report.ok and report.layers[-1].own_snr_db < 60


def test_weights_that_are_no_convolutions_count_as_half_precision_too(tmp_path, quick):
    scales = np.random.default_rng(0).uniform(1, 2, size=(3, 8, 8)).astype(np.float32)
    path = save_onnx(tmp_path / "m.onnx", [("Mul", ["x", "s"], ["y"])], {"x": ("float32", ["batch", 3, 8, 8])},
                     {"y": ("float32", ["batch", 3, 8, 8])}, {"s": scales})  # fmt: skip
    report = layer_parity(path, convert(path, "--fp16"), NOISE)
    assert report.ok and report.layers[0].own_snr_db < 90


def test_what_depends_on_shapes_alone_is_no_layer(tmp_path, quick):
    nodes = [("Shape", ["x"], ["shape"]), ("Gather", ["shape", "zero"], ["n"]),
             ("Concat", ["n", "rest"], ["to"], {"axis": 0}),
             ("Relu", ["x"], ["r"]), ("Reshape", ["r", "to"], ["y"])]  # fmt: skip
    path = save_onnx(tmp_path / "s.onnx", nodes, {"x": ("float32", ["batch", 3, 8, 8])},
                     {"y": ("float32", ["batch", 192])}, {"zero": np.array([0]), "rest": np.array([-1])})  # fmt: skip
    report = layer_parity(path, convert(path), NOISE)
    assert report.ok and [layer.onnx_op for layer in report.layers] == ["Relu", "Reshape"]


def test_nodes_that_mnn_leaves_out_are_listed(tmp_path, quick):
    nodes = [("Relu", ["x"], ["y"]), ("Exp", ["x"], ["dead"])]
    path = save_onnx(tmp_path / "d.onnx", nodes, {"x": ("float32", ["batch", 3, 8, 8])},
                     {"y": ("float32", ["batch", 3, 8, 8])})  # fmt: skip
    report = layer_parity(path, convert(path), NOISE)
    assert report.ok and report.unmatched == ("dead",) and str(report).endswith("not compared: dead")


def test_the_answers_are_those_of_a_run_that_nobody_looks_into(nets, quick, monkeypatch):
    monkeypatch.setattr("helpers.intermediates._Exposed._run", lambda self, arrays: [np.zeros(3)] * len(self.outputs))
    report = layer_parity(*nets["course"])
    assert report.layers[-1].snr_db > 90 and "shape 3 in MNN" in report.first.note


def test_a_mean_of_the_input_itself_may_be_all_rounding_too(tmp_path, quick):
    path = save_onnx(tmp_path / "m.onnx", [("ReduceMean", ["x", "axes"], ["y"], {"keepdims": 1})],
                     {"x": ("float32", ["batch", 1, 32, 32])}, {"y": ("float32", ["batch", 1, 1, 1])},
                     {"axes": np.array([2, 3])})  # fmt: skip
    inputs = np.random.default_rng(0).normal(size=(3, 1, 32, 32))
    inputs = (inputs - inputs.mean(axis=(2, 3), keepdims=True)).astype(np.float32)
    report = layer_parity(path, convert(path), inputs)
    assert report.ok and report.layers[0].own_snr_db < 60


def test_an_output_is_a_layer_even_where_mnn_hands_on_the_same_values_twice(tmp_path, quick):
    def model(name, op):
        spec = ("float32", ["batch", 3, 8, 8])
        nodes = [("Conv", ["x", "w"], ["c"]), (op, ["c"], ["r"]), ("Reshape", ["r", "same"], ["y"])]
        return save_onnx(tmp_path / name, nodes, {"x": spec}, {"c": spec, "y": spec},
                         {"w": np.ones((3, 3, 1, 1), np.float32), "same": np.array([0, 3, 8, 8])})  # fmt: skip

    report = layer_parity(model("relu.onnx", "Relu"), convert(model("none.onnx", "Identity")), NOISE)
    assert [layer.tensor for layer in report.layers if layer.ok][0] == "c" and "r" in report.first.nodes


def test_layers_are_those_of_the_graph_with_what_was_fused(nets, quick):
    report = layer_parity(*nets["course"])
    assert [(layer.onnx_op, layer.mnn_op, layer.shape) for layer in report.layers] == [
        ("Conv+Relu", "Convolution+relu", (5, 16, 28, 28)), ("MaxPool", "Pooling", (5, 16, 14, 14)),
        ("Conv+Relu", "Convolution+relu", (5, 32, 14, 14)), ("MaxPool", "Pooling", (5, 32, 7, 7)),
        ("Reshape", "Reshape", (5, 1568)), ("Gemm+Relu", "Convolution+relu", (5, 128)),
        ("Gemm", "Convolution", (5, 10)),
    ]  # fmt: skip


def test_the_figures_are_about_everything_so_far_and_about_the_layer_alone(nets, tmp_path, quick):
    path, _, inputs = nets["course"]
    planted = faults.scale_weight(path, tmp_path / "f.onnx", 1, factor=1.1).path
    last = layer_parity(path, convert(planted), inputs).layers[-1]
    r, c = (OrtModel(file)(inputs).astype(float) for file in (path, planted))
    assert last.max_abs == pytest.approx(np.abs(c - r).max(), rel=1e-3)
    assert last.snr_db == pytest.approx(10 * np.log10((r**2).sum() / ((c - r) ** 2).sum()), abs=0.01)
    assert last.cosine == pytest.approx((r * c).sum() / np.sqrt((r**2).sum() * (c**2).sum()), abs=1e-6)
    assert last.ok


def test_what_mnn_gets_is_what_a_layer_is_judged_by(nets, tmp_path, quick):
    path, _, inputs = nets["course"]
    planted = faults.wrong_weights(path, tmp_path / "f.onnx", 0)
    report = layer_parity(path, convert(planted.path), inputs)
    assert all(layer.snr_db < 20 for layer in report.layers)
    assert all(layer.own_snr_db > 100 for layer in report.layers[1:])


def test_named_inputs_and_other_float_types_are_taken(nets, quick):
    path, mnn, inputs = nets["course"]
    assert layer_parity(path, mnn, {"input": inputs.astype(np.float64)}).ok


def test_snr_by_hand():
    assert snr([3.0, 4.0], [3.0, 4.5]) == pytest.approx(20)
    assert snr([10.0], [10.1]) == pytest.approx(40)
    assert snr([1.0, nan, inf], [1.0, nan, inf]) == inf
    for candidate in ([1.0, 2.0], [1.0, inf], [nan, nan]):
        assert snr([1.0, nan], candidate) == -inf
    assert snr([0.0, 0.0], [0.0, 1e-9]) == -inf and snr([0, 1], [0, 1]) == inf


def test_the_engines_run_in_child_processes_and_a_crash_is_an_error(nets, monkeypatch):
    path, mnn, inputs = nets["branches"]
    assert layer_parity(path, mnn, inputs).ok
    monkeypatch.setattr(native, "run", lambda *arguments, **settings: native.Finished(-11, "boom", 1.0))
    with pytest.raises(native.NativeError, match="killed by SIGSEGV"):
        layer_parity(path, mnn, inputs)


def test_files_that_are_none_are_named(nets, tmp_path):
    path, mnn, inputs = nets["course"]
    (tmp_path / "bad.mnn").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="bad.mnn is not an MNN model"):
        layer_parity(path, tmp_path / "bad.mnn", inputs)
    (tmp_path / "bad.onnx").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="bad.onnx is not an ONNX file"):
        layer_parity(tmp_path / "bad.onnx", mnn, inputs)
    with pytest.raises(FileNotFoundError, match="no.mnn"):
        layer_parity(path, tmp_path / "no.mnn", inputs)


def test_inputs_that_do_not_fit_are_refused(nets):
    path, mnn, inputs = nets["course"]
    with pytest.raises(ValueError, match=r"expects 'input' \[batch, 1, 28, 28\]"):
        layer_parity(path, mnn, inputs[0])
    with pytest.raises(ValueError, match=r"expects the inputs \['input'\], found \['x'\]"):
        layer_parity(path, mnn, {"x": inputs})


def test_a_model_that_was_made_from_another_file_is_refused(nets, tmp_path):
    with pytest.raises(ValueError, match=r"inputs are \['x'\], the ONNX file's \['input'\]"):
        layer_parity(nets["course"][0], nets["branches"][1], IMAGES)
    path = save_onnx(tmp_path / "z.onnx", [("Relu", ["x"], ["z"])], {"x": ("float32", ["batch", 3, 8, 8])},
                     {"z": ("float32", ["batch", 3, 8, 8])})  # fmt: skip
    with pytest.raises(ValueError, match=r"outputs are \['logits', 'map'\], the ONNX file's \['z'\]"):
        layer_parity(path, nets["branches"][1], NOISE)


def test_a_file_that_convert_onnx_wrote_with_8_bit_weights_differs_in_every_layer_with_weights(course, tmp_path):
    mnn = convert_onnx(course / "mnist_cnn.onnx", tmp_path / "w8.mnn", weight_bits=8).path
    report = layer_parity(course / "mnist_cnn.onnx", mnn, IMAGES)
    assert [layer.onnx_op for layer in report.wrong] == ["Conv+Relu", "Conv+Relu", "Gemm+Relu", "Gemm"]
