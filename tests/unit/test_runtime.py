import gc

import numpy as np
import pytest
import torch
from tiny_onnx import convolve, save_onnx
from torch import nn

from helpers import data
from helpers.convert import convert_onnx
from helpers.model import load_pretrained
from helpers.native import run_snippet
from helpers.runtime import MnnModule, MnnSession, OrtModel, TorchModel

ENGINES = [MnnModule, MnnSession, OrtModel]
MNN_ENGINES = [MnnModule, MnnSession]


def load(engine, onnx_path, mnn_path):
    return engine(onnx_path if engine is OrtModel else mnn_path)


@pytest.fixture(params=ENGINES)
def model(request, tiny, tiny_mnn):
    return load(request.param, tiny[0], tiny_mnn)


def convert(path):
    return convert_onnx(path, path.with_suffix(".mnn")).path


def convert_plainly(onnx_path, mnn_path):
    """What somebody without these helpers does: the label holds no signature."""
    source = (
        "import _tools, sys; _tools.mnnconvert(['MNNConvert', '-f', 'ONNX', '--modelFile', sys.argv[1], "
        "'--MNNModel', sys.argv[2], '--bizCode', 'shop'])"
    )
    assert run_snippet(source, onnx_path, mnn_path).returncode == 0


# --- right answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4, 1, 7])
def test_answers_are_those_computed_by_hand_for_any_batch(model, tiny, rng, batch):
    x = rng.normal(size=(batch, 2, 8, 8)).astype(np.float32)
    y = model(x)
    assert y.shape == (batch, 5, 6, 6) and y.dtype == np.float32
    np.testing.assert_allclose(y, convolve(x, *tiny[1:]), atol=1e-4)


def test_bare_runs_the_engine_on_the_input_of_the_last_call(tiny, tiny_mnn, rng):
    session = MnnSession(tiny_mnn)
    x = rng.normal(size=(3, 2, 8, 8)).astype(np.float32)
    y = session(x)
    assert session.bare()() == 0 and session.memory() > 3 * 5 * 6 * 6 * 4
    np.testing.assert_array_equal(session(x), y)


def test_the_batch_may_change_between_calls(model, tiny, rng):
    for batch in (1, 4, 2):
        x = rng.normal(size=(batch, 2, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(model(x), convolve(x, *tiny[1:]), atol=1e-4)


def test_names_shapes_and_dtypes_are_read_from_the_model(model):
    assert str(model.inputs["x"]) == "'x' [batch, 2, 8, 8] float32"
    assert model.outputs["y"].shape == ("batch", 5, 6, 6)
    assert "'x' [batch, 2, 8, 8] float32 → 'y'" in repr(model)


def test_a_dict_of_inputs_is_the_same_call(model, rng):
    x = rng.normal(size=(1, 2, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(model({"x": x}), model(x))


def test_results_belong_to_the_caller(model, rng):
    first = rng.normal(size=(3, 2, 8, 8)).astype(np.float32)
    kept = model(first)
    copy = kept.copy()
    for _ in range(3):
        model(rng.normal(size=(3, 2, 8, 8)).astype(np.float32))
    np.testing.assert_array_equal(kept, copy)
    kept[:] = 0
    np.testing.assert_array_equal(model(first), copy)


def test_results_outlive_their_model(tiny, tiny_mnn, rng):
    x = rng.normal(size=(1, 2, 8, 8)).astype(np.float32)
    for engine in MNN_ENGINES:
        y = engine(tiny_mnn)(x)
        gc.collect()
        engine(tiny_mnn)(rng.normal(size=(4, 2, 8, 8)))
        np.testing.assert_allclose(y, convolve(x, *tiny[1:]), atol=1e-4)


def test_float64_and_non_contiguous_inputs_are_right(model, tiny, rng):
    x = rng.normal(size=(8, 8, 2, 3)).T  # float64, every stride unusual
    np.testing.assert_allclose(model(x), convolve(x, *tiny[1:]), atol=1e-4)
    np.testing.assert_allclose(model(x[::-1]), convolve(x[::-1], *tiny[1:]), atol=1e-4)


def test_integers_and_booleans_are_taken_by_a_float_input(model, tiny):
    x = np.arange(128, dtype=np.uint8).reshape(1, 2, 8, 8)
    np.testing.assert_allclose(model(x), convolve(x.astype(float), *tiny[1:]), rtol=1e-4)
    np.testing.assert_allclose(model(x > 64), convolve((x > 64) * 1.0, *tiny[1:]), atol=1e-4)


def test_the_input_is_not_changed(model, rng):
    x = rng.normal(size=(1, 2, 8, 8)).astype(np.float32)
    before = x.copy()
    model(x)
    np.testing.assert_array_equal(x, before)


def test_module_and_session_give_the_same_answers_on_1000_images_at_batch_1_and_64(course):
    images, _ = data.test_set()
    module, session, ort = (load(e, course / "mnist_cnn.onnx", course / "mnist_cnn.mnn") for e in ENGINES)
    reference = ort(images[:1000])
    for batch in (1, 64):
        parts = np.split(images[:1000], range(batch, 1000, batch))
        by_module, by_session = (np.concatenate([engine(part) for part in parts]) for engine in (module, session))
        assert np.abs(by_module - by_session).max() <= 1e-5
        assert np.abs(by_module - reference).max() <= 1e-4


@pytest.mark.parametrize("engine", ["ort", "module", "session"])
def test_all_10000_images_get_pytorchs_answers(course, engine):
    images, labels = data.test_set()
    reference = TorchModel(load_pretrained())(images)
    assert (reference.argmax(1) == labels).mean() >= 0.991
    kinds = {"ort": OrtModel, "module": MnnModule, "session": MnnSession}
    logits = load(kinds[engine], course / "mnist_cnn.onnx", course / "mnist_cnn.mnn")(images)
    assert np.abs(logits - reference).max() < 1e-4
    top2 = np.sort(reference, axis=1)[:, -2:]
    decided = top2[:, 1] - top2[:, 0] >= 1e-4
    assert (logits.argmax(1) == reference.argmax(1))[decided].all()


# --- shapes, ranks, dtypes, several inputs and outputs ------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Two inputs (an image, int64 ids), three outputs (a map, an embedding, a scalar)."""
    rng = np.random.default_rng(3)
    path = save_onnx(
        tmp_path_factory.mktemp("many") / "many.onnx",
        [
            ("Conv", ["image", "w"], ["map"]),
            ("Gather", ["table", "ids"], ["embedding"]),
            ("ReduceMean", ["map"], ["mean"], {"keepdims": 0}),
        ],
        {"image": ("float32", [1, 3, 8, 8]), "ids": ("int64", [1, 7])},
        {"map": ("float32", [1, 5, 6, 6]), "embedding": ("float32", [1, 7, 4]), "mean": ("float32", [])},
        {"w": rng.normal(size=(5, 3, 3, 3)).astype(np.float32), "table": rng.normal(size=(10, 4)).astype(np.float32)},
    )
    return path, convert(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_several_outputs_come_as_a_dict_with_the_ranks_of_the_onnx_model(many, rng, engine):
    x = {"image": rng.normal(size=(1, 3, 8, 8)), "ids": np.array([[0, 9, 1, 2, 3, 4, 5]])}
    expected = OrtModel(many[0])(x)
    found = load(engine, *many)(x)
    assert list(found) == ["map", "embedding", "mean"]
    for name in found:
        assert found[name].shape == expected[name].shape and found[name].dtype == expected[name].dtype
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_a_trailing_axis_that_mnn_adds_is_taken_off(tmp_path, rng, engine):
    path = save_onnx(
        tmp_path / "c1.onnx", [("Conv", ["x", "w"], ["y"])],
        {"x": ("float32", ["batch", 4, 9])}, {"y": ("float32", ["batch", 6, 7])},
        {"w": rng.normal(size=(6, 4, 3)).astype(np.float32)},
    )  # fmt: skip
    x = rng.normal(size=(2, 4, 9)).astype(np.float32)
    y = engine(convert(path))(x)
    assert y.shape == (2, 6, 7)
    np.testing.assert_allclose(y, OrtModel(path)(x), atol=1e-5)


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_int64_outputs_are_int64(tmp_path, rng, engine):
    path = save_onnx(
        tmp_path / "a.onnx", [("ArgMax", ["x"], ["y"], {"axis": 1, "keepdims": 0})],
        {"x": ("float32", ["batch", 4])}, {"y": ("int64", ["batch"])},
    )  # fmt: skip
    x = rng.normal(size=(5, 4)).astype(np.float32)
    y = engine(convert(path))(x)
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, x.argmax(axis=1))


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_channels_that_mnn_pads_in_memory_are_read_right(tmp_path, rng, engine):
    # With --keepInputFormat=0 the output stays in MNN's NC4HW4 order, padded from 5 to 8 channels.
    path = save_onnx(
        tmp_path / "k.onnx", [("Conv", ["x", "w"], ["y"])],
        {"x": ("float32", [1, 3, 8, 8])}, {"y": ("float32", [1, 5, 6, 6])},
        {"w": rng.normal(size=(5, 3, 3, 3)).astype(np.float32)},
    )  # fmt: skip
    mnn = convert_onnx(path, tmp_path / "k.mnn", options=["--keepInputFormat=0"]).path
    x = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(engine(mnn)(x), OrtModel(path)(x), atol=1e-5)


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_a_file_with_somebody_elses_label_runs_with_what_mnn_knows(tiny, tmp_path, rng, engine):
    convert_plainly(tiny[0], tmp_path / "foreign.mnn")
    model = engine(tmp_path / "foreign.mnn")
    for batch in (1, 3):
        x = rng.normal(size=(batch, 2, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(model(x), convolve(x, *tiny[1:]), atol=1e-4)


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_a_foreign_fixed_batch_model_refuses_a_batch_and_goes_on(tmp_path, rng, engine):
    path = save_onnx(
        tmp_path / "fixed.onnx", [("Reshape", ["x", "s"], ["r"]), ("MatMul", ["r", "w"], ["y"])],
        {"x": ("float32", [1, 2, 3])}, {"y": ("float32", [1, 4])},
        {"s": np.array([1, 6]), "w": rng.normal(size=(6, 4)).astype(np.float32)},
    )  # fmt: skip
    convert_plainly(path, tmp_path / "fixed.mnn")
    model = engine(tmp_path / "fixed.mnn")
    with pytest.raises(RuntimeError, match="engine rejects these shapes.*dynamic batch"):
        model(np.zeros((4, 2, 3), np.float32))
    x = rng.normal(size=(1, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(model(x), OrtModel(path)(x), atol=1e-5)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            np.zeros((8, 8)),
            r"expects 'x' \[batch, 2, 8, 8\] float32, found float64 \[8, 8\]. Add the missing axes.*\[None, None",
        ),
        (np.zeros((1, 3, 8, 8)), r"found float64 \[1, 3, 8, 8\]: axis 1 must be 2"),
        (np.zeros((0, 2, 8, 8)), "axis 0 must be at least 1"),
        (np.zeros((1, 2, 8, 8, 1)), r"found float64 \[1, 2, 8, 8, 1\]"),
        (np.zeros((1, 2, 8, 8), complex), "found complex128.*Convert it first"),
        (np.full((1, 2, 8, 8), "7"), "Convert it first"),
        (np.full((1, 2, 8, 8), 1e300), "1e.300 does not fit into float32"),
        ({"y": np.zeros((1, 2, 8, 8))}, r"expects the inputs \['x'\], found \['y'\]"),
        ({}, r"expects the inputs \['x'\], found \[\]"),
        (None, "expects 'x'"),
    ],
)
def test_a_wrong_input_is_refused_with_what_was_expected_and_found(model, given, words):
    with pytest.raises(ValueError, match=words):
        model(given)
    assert model(np.zeros((1, 2, 8, 8))).shape == (1, 5, 6, 6)  # and the model is as good as before


@pytest.mark.parametrize(
    "given", [np.zeros((1, 2, 8, 9)), np.zeros((1, 2, 8, 8), complex), np.full((1, 2, 8, 8), 1e300)]
)
def test_after_a_right_input_a_wrong_one_is_still_refused(model, tiny, rng, given):
    x = rng.normal(size=(1, 2, 8, 8)).astype(np.float32)
    model(x), model(x)  # from the second call on, the shape is known and not looked at again
    with pytest.raises(ValueError, match="found"):
        model(given)
    np.testing.assert_allclose(model(x), convolve(x, *tiny[1:]), atol=1e-4)


def test_arrays_of_the_known_shape_in_another_memory_order_dtype_or_byte_order_are_right(model, tiny, rng):
    x = rng.normal(size=(2, 2, 8, 8)).astype(np.float32)
    expected = convolve(x, *tiny[1:])
    for variant in (x, x, np.asfortranarray(x), x.astype(">f4"), x.astype(np.float64), np.repeat(x, 2, 3)[..., ::2], x):
        np.testing.assert_allclose(model(variant), expected, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fixed_batch_refuses_another_one_with_the_remedy(many, engine):
    with pytest.raises(ValueError, match="axis 0 must be 1.*batch is fixed.*dynamic batch"):
        load(engine, *many)({"image": np.zeros((2, 3, 8, 8)), "ids": np.zeros((1, 7), int)})


@pytest.mark.parametrize("engine", ENGINES)
def test_floats_are_no_ids_and_ids_must_fit(many, engine):
    model = load(engine, *many)
    with pytest.raises(ValueError, match="'ids'.*found float64"):
        model({"image": np.zeros((1, 3, 8, 8)), "ids": np.zeros((1, 7))})
    with pytest.raises(ValueError, match="give a dict with 'image', 'ids'"):
        model(np.zeros((1, 3, 8, 8)))


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_an_id_beyond_32_bits_is_refused(many, engine):
    with pytest.raises(ValueError, match="32-bit integers; found 4294967296"):
        engine(many[1])({"image": np.zeros((1, 3, 8, 8)), "ids": np.full((1, 7), 2**32)})


def test_nan_is_passed_on_to_the_engine(model):
    x = np.zeros((2, 2, 8, 8), np.float32)
    clean = model(x)[1]
    x[0] = np.nan
    np.testing.assert_array_equal(model(x)[1], clean)  # and does not spoil the other row


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_or_foreign_file_is_named(tmp_path, engine):
    with pytest.raises(FileNotFoundError, match="no.bin does not exist; expected an ."):
        engine(tmp_path / "no.bin")
    for content in (b"", b"garbage" * 100):
        (tmp_path / "bad.bin").write_bytes(content)
        with pytest.raises(ValueError, match="bad.bin"):
            engine(tmp_path / "bad.bin")


@pytest.mark.parametrize("engine", MNN_ENGINES)
def test_a_truncated_model_is_refused(course, tmp_path, engine):
    (tmp_path / "half.mnn").write_bytes((course / "mnist_cnn.mnn").read_bytes()[:400_000])
    with pytest.raises(ValueError, match="half.mnn is not an MNN model.*400,000 bytes found"):
        engine(tmp_path / "half.mnn")


# --- threads and noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["MnnModule", "MnnSession"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_engine_starts_as_many_threads_as_asked(tiny_mnn, engine, threads):
    source = (
        "import sys, psutil, numpy as np, helpers.runtime as r, MNN\n"
        "before = psutil.Process().num_threads()\n"
        f"m = r.{engine}(sys.argv[1], threads={threads}); m(np.zeros((1, 2, 8, 8)))\n"
        "print(psutil.Process().num_threads() - before)"
    )
    assert run_snippet(source, tiny_mnn).log.split()[-1] == str(threads - 1)


@pytest.mark.parametrize("engine", ["MnnModule", "MnnSession"])
def test_more_threads_than_mnns_pool_has_are_refused_and_fewer_are_fine(tiny_mnn, engine):
    source = (
        "import sys, numpy as np, helpers.runtime as r\n"
        f"load = lambda n: r.{engine}(sys.argv[1], threads=n)(np.zeros((1, 2, 8, 8))).shape\n"
        "load(1); load(3); load(2)\n"
        "try: load(4)\n"
        "except RuntimeError as error: print(error)\n"
    )
    finished = run_snippet(source, tiny_mnn)
    assert finished.returncode == 0
    assert "cannot compute with 4 threads" in finished.log and "was started with 3." in finished.log


def test_a_pool_that_other_code_started_is_seen_through(tiny_mnn):
    source = (
        "import sys, numpy as np, MNN, helpers.runtime as r\n"
        "MNN.Interpreter(sys.argv[1]).createSession({'numThread': 2})\n"
        "print(r.MnnModule(sys.argv[1], threads=2)(np.zeros((1, 2, 8, 8))).shape)\n"
        "try: r.MnnModule(sys.argv[1], threads=3)\n"
        "except RuntimeError as error: print(error)\n"
    )
    log = run_snippet(source, tiny_mnn).log
    assert "(1, 5, 6, 6)" in log and "cannot compute with 3 threads" in log and "was started with 2." in log


@pytest.mark.parametrize("engine", MNN_ENGINES)
@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", None])
def test_a_number_of_threads_that_is_none_is_refused(tiny_mnn, engine, threads):
    with pytest.raises(ValueError, match="threads must be a whole number"):
        engine(tiny_mnn, threads=threads)


def test_nothing_is_printed(tiny_mnn, capfd):
    for engine in MNN_ENGINES:
        engine(tiny_mnn)(np.zeros((1, 2, 8, 8)))
    assert capfd.readouterr() == ("", "")


# --- PyTorch ------------------------------------------------------------------------------------------------


def test_a_torch_module_is_called_like_the_others(rng):
    linear = nn.Linear(3, 2).eval()
    x = rng.normal(size=(4, 3))
    expected = x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    model = TorchModel(linear)
    np.testing.assert_allclose(model(x), expected, atol=1e-6)
    np.testing.assert_allclose(model({"input": x}), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"expects the inputs \['input'\], found \['y'\]"):
        model({"y": x})


def test_a_module_in_training_mode_is_refused():
    with pytest.raises(ValueError, match="training mode.*Call .eval"):
        TorchModel(nn.Dropout())(np.zeros((1, 3)))


def test_several_torch_outputs_come_as_a_dict():
    class Two(nn.Module):
        def forward(self, x):
            return x, torch.argmax(x, dim=1)

    found = TorchModel(Two().eval())(np.eye(3, dtype=np.float32))
    assert list(found) == ["output_0", "output_1"] and found["output_1"].tolist() == [0, 1, 2]
