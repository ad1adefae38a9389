import numpy as np
import pytest
from tiny_onnx import save_onnx

from helpers import native
from helpers.convert import convert_onnx
from helpers.parity import compare, verify

nan, inf = np.nan, np.inf


def test_the_figures_are_those_computed_by_hand():
    parity = compare(np.array([[1.0, 2.0], [0.0, 4.0]]), np.array([[1.0, 2.5], [0.0, 3.0]]))
    assert (parity.max_abs, parity.mean_abs, parity.max_rel) == (1.0, 0.375, 0.25)
    assert parity.cosine == pytest.approx((1 + 5 + 12) / np.sqrt(21 * (1 + 6.25 + 9)))
    assert parity.top1_agreement == 1.0 and not parity.ok


def test_top1_counts_rows_whose_largest_value_moved():
    reference = np.eye(4)
    candidate = np.eye(4)[[0, 1, 2, 0]]
    assert compare(reference, candidate).top1_agreement == 0.75


def test_ok_is_numpys_allclose():
    reference = np.array([1.0, 1000.0])
    assert compare(reference, reference + [0.001, 1.0], atol=1e-4, rtol=1e-3).ok
    assert not compare(reference, reference + [0.0012, 0.0], atol=1e-4, rtol=1e-3).ok


def test_nan_agrees_with_nan_only():
    assert compare(np.array([nan, 1.0]), np.array([nan, 1.0])).ok
    for other in ([0.0, 1.0], [nan, nan]):
        parity = compare(np.array([nan, 1.0]), np.array(other))
        assert not parity.ok and parity.max_abs == inf


def test_infinity_agrees_with_the_same_infinity_only():
    assert compare(np.array([inf, 1.0]), np.array([inf, 1.0])).max_abs == 0
    assert not compare(np.array([inf, 1.0]), np.array([-inf, 1.0])).ok


def test_all_zero_against_something_is_not_similar():
    assert compare(np.zeros(3), np.ones(3)).cosine == 0 and compare(np.zeros(3), np.zeros(3)).cosine == 1


def test_scalars_compare():
    assert compare(np.float32(2), np.float32(2)).ok


@pytest.mark.parametrize("other", [np.zeros((2, 2)), np.zeros(3)])
def test_different_shapes_are_an_error_that_names_both(other):
    with pytest.raises(ValueError, match=r"found \[4\] and \["):
        compare(np.zeros(4), other)
    with pytest.raises(ValueError, match="at least one element"):
        compare(np.zeros(0), np.zeros(0))


def test_parity_prints_as_a_line_and_as_a_table():
    parity = compare(np.ones((1, 2)), np.ones((1, 2)))
    assert str(parity) == "agrees: max abs 0.0e+00, cosine 1.000000, top-1 100.00%"
    assert "max_rel" in parity.table() and "\n" in parity.table()


def test_a_faithful_conversion_is_verified_with_one_parity_per_output(tiny, tiny_mnn):
    verdict = verify(tiny[0], tiny_mnn)
    assert verdict.ok and list(verdict.outputs) == ["y"] and str(verdict).startswith("verified\n  y: agrees")


def test_given_inputs_are_used(tiny, tiny_mnn, rng):
    assert verify(tiny[0], tiny_mnn, rng.normal(size=(7, 2, 8, 8)).astype(np.float32)).ok
    assert "expects 'x'" in verify(tiny[0], tiny_mnn, np.zeros((1, 3, 8, 8))).reason


def changed(tiny, tmp_path, **weights):
    """The tiny network with other weights or another graph, as an .mnn file."""
    _, w, b = tiny
    path = save_onnx(
        tmp_path / "other.onnx",
        weights.pop("nodes", [("Conv", ["x", "w", "b"], ["c"]), ("Relu", ["c"], ["y"])]),
        {"x": ("float32", weights.pop("shape", ["batch", 2, 8, 8]))},
        {weights.pop("output", "y"): ("float32", weights.pop("y_shape", ["batch", 5, 6, 6]))},
        {"w": w, "b": b} | weights,
    )
    return convert_onnx(path, tmp_path / "other.mnn").path


def test_a_dropped_relu_is_seen_since_the_inputs_include_negative_values(tiny, tmp_path):
    other = changed(tiny, tmp_path, nodes=[("Conv", ["x", "w", "b"], ["y"])])
    verdict = verify(tiny[0], other)
    assert not verdict.ok and not verdict.outputs["y"].ok and "DIFFERS" in str(verdict)


def test_other_weights_are_seen(tiny, tmp_path):
    assert not verify(tiny[0], changed(tiny, tmp_path, b=tiny[2] + 0.01)).ok


def test_a_batch_that_became_fixed_is_seen(tiny, tmp_path):
    other = changed(tiny, tmp_path, shape=[1, 2, 8, 8], y_shape=[1, 5, 6, 6])
    verdict = verify(tiny[0], other)
    assert not verdict.ok and "batch is fixed" in verdict.reason


def test_another_output_name_is_seen(tiny, tmp_path):
    other = changed(tiny, tmp_path, nodes=[("Conv", ["x", "w", "b"], ["c"]), ("Relu", ["c"], ["z"])], output="z")
    verdict = verify(tiny[0], other)
    assert not verdict.ok and "['y'] in ONNX, ['z'] in MNN" in verdict.reason


def test_another_rank_and_another_dtype_are_seen(tmp_path):
    def model(name, nodes, dtype, shape):
        return save_onnx(tmp_path / name, nodes, {"x": ("float32", ["batch", 4])}, {"y": (dtype, shape)})

    plain = model("plain.onnx", [("ArgMax", ["x"], ["y"], {"axis": 1, "keepdims": 1})], "int64", ["batch", 1])
    cast = [("ArgMax", ["x"], ["i"], {"axis": 1, "keepdims": 1}), ("Cast", ["i"], ["y"], {"to": 1})]
    other = convert_onnx(model("cast.onnx", cast, "float32", ["batch", 1]), tmp_path / "cast.mnn").path
    assert "dtype int64 in ONNX, float32 in MNN" in str(verify(plain, other))
    flat = [("ArgMax", ["x"], ["y"], {"axis": 1, "keepdims": 0})]
    other = convert_onnx(model("flat.onnx", flat, "int64", ["batch"]), tmp_path / "flat.mnn").path
    assert "shape [1, 1] in ONNX, [1] in MNN" in str(verify(plain, other))


def test_two_models_that_compute_nothing_do_not_verify_each_other(tiny, tmp_path):
    _, w, b = tiny
    dead = save_onnx(
        tmp_path / "dead.onnx",
        [("Conv", ["x", "w", "b"], ["c"]), ("Relu", ["c"], ["y"])],
        {"x": ("float32", ["batch", 2, 8, 8])},
        {"y": ("float32", ["batch", 5, 6, 6])},
        {"w": np.zeros_like(w), "b": b},
    )
    mnn = convert_onnx(dead, tmp_path / "dead.mnn").path
    for inputs in (None, np.ones((1, 2, 8, 8), np.float32)):
        verdict = verify(dead, mnn, inputs)
        assert not verdict.ok and "computed nothing" in verdict.reason


def test_nan_everywhere_is_not_verified(tiny, tiny_mnn):
    verdict = verify(tiny[0], tiny_mnn, np.full((1, 2, 8, 8), nan, np.float32))
    assert not verdict.ok


def test_an_unusable_file_is_a_verdict_with_its_reason(tiny, tmp_path):
    (tmp_path / "m.mnn").write_bytes(b"garbage")
    verdict = verify(tiny[0], tmp_path / "m.mnn")
    assert not verdict.ok and "m.mnn is not an MNN model" in verdict.reason
    (tmp_path / "m.onnx").write_bytes(b"garbage")
    assert "cannot load" in verify(tmp_path / "m.onnx", tmp_path / "m.mnn").reason


def test_a_crash_of_the_engine_is_a_verdict_too(tiny, tiny_mnn, monkeypatch):
    monkeypatch.setattr(native, "run", lambda *arguments, **settings: native.Finished(-11, "boom", 1.0))
    verdict = verify(tiny[0], tiny_mnn)
    assert not verdict.ok and "killed by SIGSEGV" in verdict.reason


def test_a_missing_file_is_an_error(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="no.mnn"):
        verify(tiny[0], tmp_path / "no.mnn")


def test_inputs_that_cannot_be_made_up_are_asked_for(tmp_path):
    path = save_onnx(
        tmp_path / "free.onnx", [("Relu", ["x"], ["y"])],
        {"x": ("float32", ["batch", "length"])}, {"y": ("float32", ["batch", "length"])},
    )  # fmt: skip
    mnn = convert_onnx(path, tmp_path / "free.mnn").path
    with pytest.raises(ValueError, match="pass inputs="):
        verify(path, mnn)
    assert verify(path, mnn, np.array([[-1.0, 2.0, 3.0]], np.float32)).ok


def test_the_course_network_is_verified_and_its_4_bit_variant_is_not(course, tmp_path):
    assert verify(course / "mnist_cnn.onnx", course / "mnist_cnn.mnn").ok
    crude = convert_onnx(course / "mnist_cnn.onnx", tmp_path / "w4.mnn", weight_bits=4).path
    assert not verify(course / "mnist_cnn.onnx", crude).ok
