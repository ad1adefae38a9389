"""A planted fault is the one that was asked for, and nothing else changes."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_nets import branches
from tiny_onnx import convolve, save_onnx

from helpers import faults
from helpers.runtime import OrtModel

NOISE = np.random.default_rng(3).normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return branches(tmp_path_factory.mktemp("faults") / "branches.onnx")


def weights(path):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def changed(before, after):
    """Names of the tensors that differ."""
    before, after = weights(before), weights(after)
    assert before.keys() == after.keys()
    return [name for name in before if not np.array_equal(before[name], after[name])]


def test_scaled_weights_are_the_old_ones_times_the_factor(net, tmp_path):
    planted = faults.scale_weight(net, tmp_path / "f.onnx", 1, factor=1.05)
    assert (planted.node, planted.path) == ("b", tmp_path / "f.onnx")
    assert changed(net, planted.path) == ["wb"]
    np.testing.assert_allclose(weights(planted.path)["wb"], weights(net)["wb"] * 1.05, rtol=1e-6)


def test_a_layer_is_found_by_name_too(net, tmp_path):
    assert changed(net, faults.scale_weight(net, tmp_path / "f.onnx", "logits").path) == ["wl"]


def test_wrong_weights_are_the_old_ones_in_another_order(net, tmp_path):
    planted = faults.wrong_weights(net, tmp_path / "f.onnx", 0)
    assert changed(net, planted.path) == ["wa"]
    old, new = weights(net)["wa"], weights(planted.path)["wa"]
    assert old.shape == new.shape and np.array_equal(np.sort(old, axis=None), np.sort(new, axis=None))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_quantized_weights_have_few_values_and_are_half_a_step_off_at_most(bits, net, tmp_path):
    planted = faults.quantize_weight(net, tmp_path / "f.onnx", 2, bits=bits)
    assert changed(net, planted.path) == ["wc"]
    old, new = weights(net)["wc"], weights(planted.path)["wc"]
    step = np.abs(old).max() / (2 ** (bits - 1) - 1)
    assert len(np.unique(new)) <= 2**bits - 1 and np.abs(new - old).max() <= step * 0.501


def test_weights_that_overflow_half_precision_leave_the_fp32_answer_finite(net, tmp_path):
    planted = faults.overflow_fp16(net, tmp_path / "f.onnx", 0)
    new = weights(planted.path)["wa"]
    assert changed(net, planted.path) == ["wa"]
    with np.errstate(over="ignore"):
        assert np.isinf(new.astype(np.float16)).any()
    assert all(np.isfinite(array).all() for array in OrtModel(planted.path)(NOISE).values())


@pytest.mark.parametrize("largest", [65504, 1e31, float("nan")])
def test_an_overflow_that_is_none_or_breaks_fp32_is_refused(largest, net, tmp_path):
    with pytest.raises(ValueError, match="beyond 65504"):
        faults.overflow_fp16(net, tmp_path / "f.onnx", 0, largest)


def test_without_its_bias_a_layer_gives_less_by_the_bias(tmp_path):
    w, b = np.ones((2, 3, 3, 3), np.float32), np.array([1.5, -2.0], np.float32)
    path = save_onnx(tmp_path / "c.onnx", [("Conv", ["x", "w", "b"], ["y"])], {"x": ("float32", ["batch", 3, 8, 8])},
                     {"y": ("float32", ["batch", 2, 6, 6])}, {"w": w, "b": b})  # fmt: skip
    planted = faults.drop_bias(path, tmp_path / "f.onnx")
    difference = OrtModel(path)(NOISE) - OrtModel(planted.path)(NOISE)
    np.testing.assert_allclose(difference, np.broadcast_to(b[:, None, None], difference.shape), atol=1e-5)


def test_without_the_last_relu_the_output_keeps_its_name_and_may_be_negative(tiny, tmp_path):
    path, w, b = tiny
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)
    planted = faults.remove_relu(path, tmp_path / "f.onnx")
    model = OrtModel(planted.path)
    assert list(model.outputs) == ["y"] and planted.node == "y"
    positive, negative = convolve(x, w, b), convolve(x, -w, -b)
    np.testing.assert_allclose(model(x), positive - negative, rtol=1e-4, atol=1e-5)


def test_a_relu_between_is_bridged_for_all_that_read_it(net, tmp_path):
    planted = faults.remove_relu(net, tmp_path / "f.onnx", 0)
    graph = onnx.load(planted.path).graph
    assert [node.output[0] for node in graph.node if "a" in node.input] == ["b", "sum"]
    assert planted.node == "ra" and not any("ra" in node.input for node in graph.node)
    onnx.checker.check_model(onnx.load(planted.path), full_check=True)


def test_changed_padding_shifts_the_content_and_keeps_the_shape(tmp_path):
    identity = np.zeros((3, 3, 3, 3), np.float32)
    identity[[0, 1, 2], [0, 1, 2], 1, 1] = 1
    path = save_onnx(tmp_path / "c.onnx", [("Conv", ["x", "w"], ["y"], {"pads": [1] * 4})],
                     {"x": ("float32", ["batch", 3, 8, 8])}, {"y": ("float32", ["batch", 3, 8, 8])},
                     {"w": identity})  # fmt: skip
    planted = faults.change_padding(path, tmp_path / "f.onnx")
    expected = np.zeros_like(NOISE)
    expected[..., 1:, 1:] = NOISE[..., :-1, :-1]
    np.testing.assert_allclose(OrtModel(planted.path)(NOISE), expected, atol=1e-6)
    assert str(planted) == "y: padding [1, 1, 1, 1] became [2, 2, 0, 0]"


def test_weights_in_a_constant_node_are_found(tmp_path):
    model = onnx.load(save_onnx(tmp_path / "m.onnx", [("MatMul", ["x", "w"], ["y"])], {"x": ("float32", [2, 3])},
                                {"y": ("float32", [2, 3])}, {"w": np.eye(3, dtype=np.float32)}))  # fmt: skip
    tensor = model.graph.initializer.pop()
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    onnx.save(model, tmp_path / "m.onnx")
    planted = faults.scale_weight(tmp_path / "m.onnx", tmp_path / "f.onnx", factor=3)
    assert OrtModel(planted.path)(np.ones((2, 3), np.float32)).tolist() == [[3, 3, 3], [3, 3, 3]]


@pytest.mark.parametrize("layer", ["sum", 99, -1])
def test_a_layer_that_is_none_is_refused_with_those_there_are(layer, net, tmp_path):
    with pytest.raises(ValueError, match="it fits a, b, c, logits, pre"):
        faults.scale_weight(net, tmp_path / "f.onnx", layer)
    assert not (tmp_path / "f.onnx").exists()


def test_a_network_without_such_a_layer_is_refused(tmp_path):
    path = save_onnx(tmp_path / "r.onnx", [("Relu", ["x"], ["y"])], {"x": ("float32", [2])}, {"y": ("float32", [2])})
    with pytest.raises(ValueError, match="it fits none"):
        faults.drop_bias(path, tmp_path / "f.onnx")
    with pytest.raises(ValueError, match="try another seed"):
        faults.mystery(path, tmp_path / "f.onnx", next(s for s in range(9) if _kind(s) is not faults.remove_relu))


def _kind(seed):
    return faults.FAULTS[np.random.default_rng(seed).integers(len(faults.FAULTS))]


def test_a_mystery_is_sealed_the_same_for_a_seed_and_differs_between_seeds(net, tmp_path):
    sealed = [faults.mystery(net, tmp_path / f"{seed}.onnx", seed) for seed in range(12)]
    again = [faults.mystery(net, tmp_path / f"again{seed}.onnx", seed) for seed in range(12)]
    answers = [str(each.reveal()) for each in sealed]
    assert answers == [str(each.reveal()) for each in again] and len(set(answers)) > 5
    for each in sealed:
        assert each.reveal().what not in repr(each) and each.path.name in repr(each)
        assert each.is_in(each.reveal().node) and not each.is_in("flat")


def test_a_mystery_changes_the_answers(net, tmp_path):
    reference = OrtModel(net)(NOISE)
    for seed in range(8):
        found = OrtModel(faults.mystery(net, tmp_path / "m.onnx", seed).path)(NOISE)
        assert any(np.abs(found[name] - reference[name]).max() > 1e-3 for name in reference)


def test_every_fault_fits_the_course_network_and_leaves_a_valid_file(course, tmp_path):
    for fault in (*faults.FAULTS, faults.overflow_fp16):
        planted = fault(course / "mnist_cnn.onnx", tmp_path / "f.onnx", 1)
        onnx.checker.check_model(str(planted.path), full_check=True)
