"""INT8 by calibration, and everything that MNN's quantizer fails at silently. Oracles: numpy and ONNX Runtime."""

import json

import numpy as np
import onnx
import pytest
from PIL import Image

from helpers import quantize
from helpers.convert import convert_onnx, graph_ops
from helpers.data import MEAN, STD, arrays, calibration_samples
from helpers.data import test_set as digits
from helpers.quantize import CalibrationError, calibrate_int8, logits_of, noisy_ground, run_mnnquant, variants
from helpers.runtime import MnnModule, OrtModel


@pytest.fixture(scope="module")
def samples():
    return calibration_samples(60)


@pytest.fixture(scope="module")
def kl(course, samples, tmp_path_factory):
    return calibrate_int8(course / "mnist_cnn.mnn", tmp_path_factory.mktemp("kl") / "int8.mnn", noisy_ground(samples))


@pytest.fixture(scope="module")
def ema(course, samples, tmp_path_factory):
    out = tmp_path_factory.mktemp("ema") / "int8.mnn"
    return calibrate_int8(course / "mnist_cnn.mnn", out, samples, method="EMA", batch_size=20)


@pytest.fixture
def settings(tmp_path):
    """Function that writes the JSON of a good KL run over 8 real images, with changes, and returns its path."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number, image in enumerate(arrays(train=True)[0][:8]):
        Image.fromarray(image).save(folder / f"{number}.png")

    def write(**changes):
        config = {
            "format": "GRAY", "mean": [MEAN * 255], "normal": [1 / (STD * 255)], "width": 28, "height": 28,
            "path": f"{folder.as_posix()}/", "used_image_num": 8, "feature_quantize_method": "KL",
            "weight_quantize_method": "MAX_ABS", **changes,
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path / "config.json"

    return write


def test_the_int8_model_answers_nearly_as_onnx_runtime_does(course, kl):
    images, labels = (array[:2000] for array in digits())
    reference = logits_of(OrtModel(course / "mnist_cnn.onnx"), images)
    answers = logits_of(MnnModule(kl.path), images)
    assert (answers.argmax(1) == labels).mean() > (reference.argmax(1) == labels).mean() - 0.005
    assert (answers.argmax(1) == reference.argmax(1)).mean() > 0.99
    assert not np.allclose(answers, reference, atol=1e-3)  # it is another arithmetic


def test_all_convolutions_are_quantized_and_the_file_is_a_quarter(course, kl):
    names = [op.name for op in graph_ops(course / "mnist_cnn.mnn") if op.type == "Convolution"]
    assert kl.ops == names and len(names) == 4 and kl.ops_left == []
    assert kl.bytes == kl.path.stat().st_size < 0.28 * (course / "mnist_cnn.mnn").stat().st_size


def test_the_kept_range_is_127_steps_either_way(kl):
    tensor = kl.tensor("input")
    assert tensor.zero == 0 and tensor.high == pytest.approx(127 * tensor.scale) and tensor.low == -tensor.high


def test_kl_on_plain_digits_clips_the_input_and_the_report_says_how_much(course, samples, tmp_path):
    report = calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "q.mnn", samples)
    tensor = report.tensor("input")
    assert tensor.high < 0.6 < samples.max()
    outside = np.abs(samples) > tensor.high + tensor.scale / 2
    assert tensor.clipped == pytest.approx(outside.mean(), abs=1e-6) and tensor.clipped > 0.1
    assert "clipped" in str(report) and "4 of 4 convolutions" in str(report)


def test_the_clipped_share_of_an_inner_tensor_is_that_of_the_fp32_activations(course, samples, tmp_path):
    report = calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "q.mnn", samples)
    model = onnx.load(course / "mnist_cnn.onnx")
    name = next(node for node in model.graph.node if node.op_type == "Relu").output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    onnx.save(model, tmp_path / "open.onnx")
    values = OrtModel(tmp_path / "open.onnx")(samples)[name]
    tensor = report.tensor(name)
    outside = (values < tensor.low - tensor.scale / 2) | (values > tensor.high + tensor.scale / 2)
    assert tensor.clipped == pytest.approx(outside.mean(), abs=1e-4) and tensor.clipped > 0.01


def test_ema_finds_the_asymmetric_range_of_the_samples(ema, samples):
    tensor = ema.tensors[0]
    scale = (samples.max() - samples.min()) / 254
    assert tensor.scale == pytest.approx(scale, rel=0.01)
    assert tensor.zero == pytest.approx(-127 - samples.min() / scale, abs=1)


def test_ema_averages_over_the_batches_largest_values(course, ema, samples, tmp_path):
    # Moving average with weight 0.99 on the past; the ReLU's smallest value is 0, so 254 steps reach the average.
    model = onnx.load(course / "mnist_cnn.onnx")
    name = next(node for node in model.graph.node if node.op_type == "Relu").output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    onnx.save(model, tmp_path / "open.onnx")
    largest = OrtModel(tmp_path / "open.onnx")(samples)[name].reshape(3, -1).max(1)
    average = largest[0]
    for value in largest[1:]:
        average = 0.99 * average + 0.01 * value
    first = next(tensor for tensor in ema.tensors[1:] if tensor.clipped is not None)
    assert first.scale == pytest.approx(average / 254, rel=0.01)


@pytest.mark.parametrize("method", ["kl", "ema"])
def test_the_label_with_names_shapes_and_dtypes_survives(method, request):
    report = request.getfixturevalue(method)
    model = MnnModule(report.path)
    assert str(model.outputs["logits"]) == "'logits' [batch, 10] float32"
    assert model(np.zeros((3, 1, 28, 28), np.float32)).shape == (3, 10)


def test_ema_takes_care_of_a_fixed_batch(course, samples, tmp_path):
    from helpers.model import load_weights
    from helpers.onnx_export import export_onnx

    export_onnx(load_weights(course / "mnist_cnn.pt"), tmp_path / "one.onnx", dynamic_batch=False)
    fixed = convert_onnx(tmp_path / "one.onnx", tmp_path / "one.mnn").path
    report = calibrate_int8(fixed, tmp_path / "q.mnn", samples[:10], method="EMA", batch_size=50)
    assert report.config["batch_size"] == 1 and len(report.ops) == 4


def test_a_skipped_operator_keeps_its_arithmetic(course, samples, tmp_path):
    first = next(op.name for op in graph_ops(course / "mnist_cnn.mnn") if op.type == "Convolution")
    report = calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "q.mnn", samples[:10], skip_ops=[first])
    assert report.ops_left == [first] and len(report.ops) == 3


def test_a_folder_of_images_gives_the_same_as_the_arrays(course, tmp_path):
    images, _ = arrays(train=True)
    folder = tmp_path / "with space é"
    folder.mkdir()
    for number, image in enumerate(images[:30]):
        Image.fromarray(image).save(folder / f"{number:02}.png")
    image = {"format": "GRAY", "mean": [MEAN * 255], "normal": [1 / (STD * 255)]}
    a = calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "a.mnn", folder, image=image)
    normalized = ((images[:30, None] / 255 - MEAN) / STD).astype(np.float32)
    b = calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "b.mnn", normalized)
    assert [t.scale for t in a.tensors] == pytest.approx([t.scale for t in b.tensors], rel=0.01)


def bad_samples():
    good = np.random.default_rng(0).normal(size=(4, 1, 28, 28))
    nan = good.copy()
    nan[0, 0, 0, 0] = np.nan
    return [
        (good[:0], {}, "no samples"),
        (good[:, 0], {}, r"shape \[4, 28, 28\].*'input' \[batch, 1, 28, 28\]"),
        (good[..., :27], {}, r"shape \[4, 1, 28, 27\]"),
        ((good * 9).astype(np.uint8), {}, "uint8: raw pixels"),
        (nan, {}, "NaN"),
        (np.ones((4, 1, 28, 28)), {}, "All values of all samples are 1"),
        (255 * abs(good), {"input_range": (-0.43, 2.83)}, "the model sees -0.43 to 2.83"),
        (good / 100, {"input_range": (-0.43, 2.83)}, "the model sees -0.43 to 2.83"),
        ("no_such_folder", {"image": {"format": "GRAY"}}, "no_such_folder does not exist"),
    ]


@pytest.mark.parametrize("samples, settings, message", bad_samples(), ids=lambda value: str(value)[:24])
def test_samples_that_cannot_be_right_are_refused(course, tmp_path, samples, settings, message):
    (tmp_path / "q.mnn").write_bytes(b"the older good one")
    with pytest.raises(CalibrationError, match=message):
        calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "q.mnn", samples, **settings)
    assert (tmp_path / "q.mnn").read_bytes() == b"the older good one" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_with_the_wrong_format_an_odd_file_or_nothing_is_refused(course, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    model, out = course / "mnist_cnn.mnn", tmp_path / "q.mnn"
    with pytest.raises(CalibrationError, match="is empty"):
        calibrate_int8(model, out, folder, image={"format": "GRAY"})
    with pytest.raises(CalibrationError, match="RGB gives 3 channels"):
        calibrate_int8(model, out, folder, image={"format": "RGB"})
    (folder / "notes.txt").write_text("no image")
    with pytest.raises(CalibrationError, match="notes.txt is not an image"):
        calibrate_int8(model, out, folder, image={"format": "GRAY"})


@pytest.mark.parametrize(
    "settings, message",
    [({"method": "kl"}, "in capitals; found 'kl'"), ({"method": "ADMM"}, "corrupts memory"),
     ({"weight_method": "ADMM"}, "MAX_ABS"), ({"method": "EMA", "skip_ops": ["a"]}, "skip_ops has no effect")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(course, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        calibrate_int8(course / "mnist_cnn.mnn", tmp_path / "q.mnn", np.zeros((1, 1, 28, 28)), **settings)


def test_a_missing_or_broken_source_is_named(tmp_path, samples):
    with pytest.raises(CalibrationError, match="none.mnn does not exist"):
        calibrate_int8(tmp_path / "none.mnn", tmp_path / "q.mnn", samples)
    (tmp_path / "broken.mnn").write_bytes(b"no model")
    with pytest.raises(CalibrationError, match="broken.mnn is not an MNN model"):
        calibrate_int8(tmp_path / "broken.mnn", tmp_path / "q.mnn", samples)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"path": "no_such_folder/"}, "no_such_folder/, does not exist"),
        ({"format": "RGB"}, r"gives \[3, 28, 28\].*Nothing would be quantized"),
        ({"width": 32, "height": 32}, r"gives \[1, 32, 32\]"),
        ({"feature_quantize_method": "kl"}, "in capitals"),
        ({"feature_quantize_method": "ADMM"}, "crashed"),
    ],
)
def test_a_json_that_the_tool_stumbles_over_becomes_a_sentence(course, tmp_path, settings, changes, message):
    with pytest.raises(CalibrationError, match=message) as caught:
        run_mnnquant(course / "mnist_cnn.mnn", tmp_path / "q.mnn", settings(**changes))
    assert "Its log:" in str(caught.value) and not (tmp_path / "q.mnn").exists()


def test_a_json_that_cannot_be_read_is_refused(course, tmp_path):
    (tmp_path / "c.json").write_text("{not json")
    with pytest.raises(CalibrationError, match="c.json are not JSON"):
        run_mnnquant(course / "mnist_cnn.mnn", tmp_path / "q.mnn", tmp_path / "c.json")
    with pytest.raises(CalibrationError, match="none.json do not exist"):
        run_mnnquant(course / "mnist_cnn.mnn", tmp_path / "q.mnn", tmp_path / "none.json")


def test_a_good_json_works(course, tmp_path, settings):
    report = run_mnnquant(course / "mnist_cnn.mnn", tmp_path / "q.mnn", settings())
    assert len(report.ops) == 4 and report.samples == 8 and report.tensor("input").clipped is None


def test_a_result_that_quantized_nothing_is_an_error(course, tmp_path, settings, monkeypatch):
    # With the check of the settings out of the way, the look at the result still notices.
    config = settings(format="RGB")
    monkeypatch.setattr(quantize, "read_config", lambda path, spec: (json.loads(path.read_text()), None))
    with pytest.raises(CalibrationError, match="not one operator was quantized"):
        run_mnnquant(course / "mnist_cnn.mnn", tmp_path / "q.mnn", config)


def test_noisy_ground_keeps_the_strokes_and_dissolves_the_spike(samples):
    noisy = noisy_ground(samples)
    bright = samples > samples.min() + (samples.max() - samples.min()) / 2
    assert noisy.dtype == np.float32 and np.array_equal(noisy[bright], samples[bright])
    assert (samples == samples.min()).mean() > 0.7 and (noisy == noisy.min()).mean() < 0.01
    assert np.array_equal(noisy, noisy_ground(samples))


def test_the_table_of_variants_is_complete_and_reuses_its_files(course, tmp_path):
    images, labels = (array[:500] for array in digits())
    table = variants(course / "mnist_cnn.onnx", images, labels, folder=tmp_path, timed=False)
    assert [row.name for row in table][:2] == ["FP32", "fp16"] and len(table) == 15
    assert table["FP32"].changed == 0 and table["FP32"].max_change < 1e-4
    assert table["8 bits"].bytes < 0.3 * table["FP32"].bytes and table["2 bits"].accuracy < 0.9
    reference = OrtModel(course / "mnist_cnn.onnx")(images)
    for row in table:
        assert row.accuracy == pytest.approx((row.logits.argmax(1) == labels).mean())
        assert row.changed == (row.logits.argmax(1) != reference.argmax(1)).sum()
        made = json.loads(row.path.with_suffix(".json").read_text())
        assert made["tool"] == ("mnnquant" if "INT8" in row.name else "mnnconvert")
        assert str(tmp_path) not in json.dumps(made)
    assert str(table).count("\n") == 15 and "INT8, EMA" in str(table)
    times = {row.path: row.path.stat().st_mtime_ns for row in table}
    variants(course / "mnist_cnn.onnx", images, labels, folder=tmp_path, timed=False)
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_a_timed_table_has_a_ratio_for_every_row(course, tmp_path, monkeypatch):
    monkeypatch.setattr(quantize, "WEIGHT_ONLY", {"FP32": {}, "8 bits": {"weight_bits": 8}})
    monkeypatch.setattr(quantize, "INT8", {})
    images, labels = (array[:20] for array in digits())
    table = variants(course / "mnist_cnn.onnx", images, labels, folder=tmp_path)
    assert table["FP32"].latency.value == 1 and 0.2 < table["8 bits"].latency.value < 5
