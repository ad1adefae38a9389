"""Every planted fault is named, at the right box; a healthy pair is left in peace."""

import importlib
import shutil

import numpy as np
import onnx
import pytest
from toy_classifier import STD, make_toy, normalised, photographs

import helpers
from helpers import diagnosis_models, faults, hypotheses, layer_faults, native
from helpers.convert import convert_onnx
from helpers.data import MEAN as MNIST_MEAN
from helpers.data import STD as MNIST_STD
from helpers.data import arrays
from helpers.diagnosis import FAULTS, QUESTIONS, diagnose
from helpers.hypotheses import chance, fewest, guesses, interval, repairs

PREPROCESSING = ("scaling", "channels", "layout", "orientation")


@pytest.fixture
def here(monkeypatch):
    """diagnose() without child processes: the same functions, in this one. Faster; a few tests use the children."""

    def call(target, *arguments, **settings):
        module, name = target.split(":")
        return getattr(importlib.import_module(module), name)(*arguments), ""

    def run(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(native, "call", call)
            return diagnose(*arguments)

    return run


@pytest.fixture(scope="session")
def mnist(course):
    return course / "mnist_cnn.onnx", course / "mnist_cnn.mnn"


@pytest.fixture(scope="session")
def pixels():
    """The test images, shuffled: float32 [10000, 1, 28, 28] in [0, 1], and their labels."""
    images, labels = arrays(train=False)
    order = np.random.default_rng(0).permutation(len(images))
    return np.float32(images[order, None] / 255), labels[order]


def digits(pixels, count, seed=0):
    images, labels = pixels
    start = seed * count % len(images)
    return np.float32((images[start : start + count] - MNIST_MEAN) / MNIST_STD), labels[start : start + count]


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    path = make_toy(tmp_path_factory.mktemp("toy") / "toy.onnx")
    return path, convert_onnx(path, path.with_suffix(".mnn")).path


@pytest.fixture(scope="session")
def shown():
    """200 photographs of the toy as it takes them, and their labels."""
    images, labels = photographs(200, seed=1)
    return normalised(images), labels


def assert_found(found, fault, box, *words):
    """The fault is found at `box`: all before it were asked, nothing after it was, and the evidence has `words`."""
    assert (found.fault, found.ok) == (fault, False), str(found)
    verdicts = {step.box: step.verdict for step in found.steps}
    place = list(QUESTIONS).index(box)
    assert verdicts[box] == "fault", str(found)
    assert set(list(verdicts.values())[:place]) <= {"fine", "skipped"}
    assert set(list(verdicts.values())[place + 1 :]) <= {"not reached"}
    for word in words:
        assert word in found.evidence
    assert fault in FAULTS[box]


def assert_healthy(found):
    assert found.fault is None and found.ok, str(found)
    assert [step.verdict for step in found.steps] == ["fine"] * len(QUESTIONS)


# --- healthy pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count, seed", [(20, 0), (20, 3), (50, 1), (200, 4), (2000, 0)])
def test_a_healthy_digit_classifier_is_left_in_peace(here, mnist, pixels, count, seed):
    assert_healthy(here(*mnist, digits(pixels, count, seed)))


@pytest.mark.parametrize("count, seed", [(20, 2), (50, 3), (200, 4)])
def test_a_healthy_classifier_of_colours_is_left_in_peace(here, toy, count, seed):
    images, labels = photographs(count, seed)
    assert_healthy(here(*toy, (normalised(images), labels)))


def test_a_healthy_pair_in_half_precision_is_left_in_peace(here, mnist, pixels, tmp_path):
    half = convert_onnx(mnist[0], tmp_path / "half.mnn", fp16=True).path
    assert_healthy(here(mnist[0], half, digits(pixels, 100)))


@pytest.fixture(scope="session")
def one_by_one(course):
    """The digit classifier exported with a batch of 1."""
    from helpers.artifacts import require

    path = require("mnist_cnn_batch1.onnx", course)
    return path, convert_onnx(path, path.with_suffix(".mnn")).path


def test_a_model_with_a_fixed_batch_is_fed_in_batches(here, one_by_one, pixels):
    assert_healthy(here(*one_by_one, digits(pixels, 20)))


def test_a_mediocre_but_honest_classifier_is_left_in_peace(here, toy):
    """Labels that are wrong for a fifth of the samples: no guess helps, and 80 % are no reason to accuse anybody."""
    images, labels = photographs(200, seed=9)
    labels = np.where(np.arange(200) % 5 == 0, (labels + 1) % 12, labels)
    found = here(*toy, (normalised(images), labels))
    assert_healthy(found)
    assert "80 % of 200 answers are right" in found.steps[-1].evidence


def test_it_works_in_child_processes_and_as_a_function_of_the_package(mnist, pixels):
    found = helpers.diagnose(*mnist, digits(pixels, 50))
    assert_healthy(found)
    assert str(found).startswith("Nothing found\n  files       fine     ")


# --- what the application feeds ----------------------------------------------------------------------------

WRONGLY_SCALED = {
    "pixels in 0..1, not normalised": (lambda p: p, "wrong mean/std"),
    "ImageNet's red channel": (lambda p: (p - 0.485) / 0.229, "wrong mean/std"),
    "mean and std exchanged": (lambda p: (p - MNIST_STD) / MNIST_MEAN, "wrong mean/std"),
    "pixels in -1..1": (lambda p: p * 2 - 1, "wrong mean/std"),
    "normalised, then divided by 255": (lambda p: (p - MNIST_MEAN) / MNIST_STD / 255, "pixel range"),
    "divided by 255 twice, then normalised": (lambda p: (p / 255 - MNIST_MEAN) / MNIST_STD, "pixel range"),
    "black on white": (lambda p: (1 - p - MNIST_MEAN) / MNIST_STD, "inverted image"),
    "negative": (lambda p: -(p - MNIST_MEAN) / MNIST_STD, "inverted image"),
}


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("wrong", WRONGLY_SCALED)
def test_wrong_scaling_is_found(here, mnist, pixels, wrong, seed):
    images, labels = pixels[0][100 * seed :][:100], pixels[1][100 * seed :][:100]
    change, fault = WRONGLY_SCALED[wrong]
    found = here(*mnist, (np.float32(change(images)), labels))
    assert_found(found, fault, "scaling", "% as fed, ", "(100 samples)", "As fed: mean ", "; then: mean ")


@pytest.mark.parametrize("wrong, fault", [(lambda p: p * 255, "pixel range"), (None, "wrong mean/std")])
def test_small_damage_is_found_with_many_samples(here, mnist, pixels, wrong, fault):
    images, labels = pixels
    twice = (((images - MNIST_MEAN) / MNIST_STD) - MNIST_MEAN) / MNIST_STD
    found = here(*mnist, (np.float32(wrong(images) if wrong else twice), labels))
    assert_found(found, fault, "scaling", "(2000 samples)")


def test_the_accuracies_in_the_evidence_are_the_measured_ones(here, toy, shown):
    from helpers.runtime import OrtModel

    x, labels = shown
    fed = np.ascontiguousarray(x[:, ::-1])
    before, after = (100 * (OrtModel(toy[0])(array).argmax(axis=1) == labels).mean() for array in (fed, x))
    found = here(*toy, (fed, labels))
    assert f"Accuracy {before:.4g} % as fed, {after:.4g} % after swapping channels 0 and 2" in found.evidence


COLOURS = {
    "BGR": (lambda p: normalised(p)[:, ::-1], "channel order", "channels"),
    "BGR before normalising": (lambda p: normalised(p[:, ::-1]), "channel order", "channels"),
    "HWC labelled CHW": (lambda p: normalised(p).transpose(0, 2, 3, 1).reshape(p.shape), "layout", "layout"),
    "height and width swapped": (lambda p: normalised(p).swapaxes(2, 3), "transposed input", "orientation"),
    "not normalised": (lambda p: p, "wrong mean/std", "scaling"),
    "0..255": (lambda p: p * 255, "pixel range", "scaling"),
    "negatives": (lambda p: normalised(1 - p), "inverted image", "scaling"),
    "axes at the end": (lambda p: normalised(p).transpose(0, 2, 3, 1), "layout", "signature"),
}


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("wrong", COLOURS)
def test_what_is_wrong_with_a_colour_image_is_found(here, toy, wrong, seed):
    images, labels = photographs(60, seed)
    change, fault, box = COLOURS[wrong]
    assert_found(here(*toy, (np.ascontiguousarray(change(images), np.float32), labels)), fault, box)


def test_a_transposed_image_that_is_not_square_is_found_by_its_shape(here, tmp_path):
    from tiny_onnx import save_onnx

    path = save_onnx(tmp_path / "wide.onnx", [("Relu", ["x"], ["y"])],
                     {"x": ("float32", ["batch", 3, 8, 12])}, {"y": ("float32", ["batch", 3, 8, 12])})  # fmt: skip
    mnn = convert_onnx(path, tmp_path / "wide.mnn").path
    x = np.random.default_rng(0).normal(size=(4, 3, 12, 8)).astype(np.float32)
    assert_found(here(path, mnn, x), "transposed input", "signature", "[4, 3, 12, 8]")
    assert_found(here(path, mnn, x[:, :2]), "wrong shape", "signature")


@pytest.mark.parametrize(
    "samples, fault, box, word",
    [
        (np.zeros((4, 1, 28, 28)), "wrong dtype", "signature", "float64"),
        (np.full((4, 1, 28, 28), 255, np.uint8), "wrong dtype", "signature", "uint8 from 255 to 255"),
        ({"image": np.ones((4, 1, 28, 28), np.float32)}, "wrong input names", "signature", "['image']"),
        (np.ones((4, 28, 28), np.float32), "wrong shape", "signature", "[4, 28, 28]"),
        (np.zeros((4, 1, 28, 28), np.float32), "constant samples", "values", "All 3,136 values are 0"),
    ],
)
def test_samples_that_cannot_be_meant_are_found_without_labels(here, mnist, samples, fault, box, word):
    assert_found(here(*mnist, samples), fault, box, word)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_in_the_samples_are_counted(here, mnist, pixels, bad):
    x, labels = digits(pixels, 30)
    x = x.copy()
    x[3, 0, 5, 5:7] = x[8, 0, 0, 0] = bad
    assert_found(here(*mnist, (x, labels)), "NaN in samples", "values", "3 of 23,520 values, in 2 of 30 samples")


def test_the_same_sample_over_and_over_is_found(here, mnist, pixels):
    x, _ = digits(pixels, 1)
    assert_found(here(*mnist, np.repeat(x, 5, axis=0)), "constant samples", "values", "5 samples are the same")


# --- what cannot be told -----------------------------------------------------------------------------------


def test_without_labels_what_needs_them_is_skipped_with_the_reason(here, mnist, pixels):
    found = here(*mnist, digits(pixels, 30)[0])
    verdicts = {step.box: step.verdict for step in found.steps}
    assert found.fault is None and not found.ok
    assert [box for box, verdict in verdicts.items() if verdict == "skipped"] == [*PREPROCESSING, "accuracy"]
    assert set(verdicts.values()) == {"fine", "skipped"}
    assert "No labels were given" in found.steps[4].evidence
    assert str(found).startswith("Nothing found, but not asked or not decided: scaling, channels")


def test_too_few_samples_are_said_to_be_too_few(here, mnist, pixels):
    images, labels = pixels
    found = here(*mnist, (images[:5], labels[:5]))  # not normalised
    assert found.fault is None and not found.ok
    assert "5 samples are too few: were all answers right, the accuracy could still be 55%" in found.steps[4].evidence


@pytest.mark.parametrize("seed", [21, 27])  # 8 and 5 answers are right as fed, 12 after the repair
def test_a_repair_that_may_be_luck_is_undecided(here, toy, seed):
    images, labels = photographs(12, seed)
    found = here(*toy, (images * 255, labels))
    scaling = found.steps[4]
    assert (found.fault, found.ok, scaling.verdict) == (None, False, "skipped")
    assert "Undecided" in scaling.evidence and "12 samples are too few" in scaling.evidence


def test_labels_that_no_output_can_answer_are_skipped(here, tiny, tiny_mnn, rng):
    found = here(tiny[0], tiny_mnn, (rng.normal(size=(20, 2, 8, 8)).astype(np.float32), np.zeros(20, int)))
    assert found.fault is None and not found.ok
    assert "No output holds scores" in found.steps[4].evidence


def test_a_bad_model_or_wrong_labels_are_called_that(here, mnist, pixels):
    x, labels = digits(pixels, 200)
    shuffled = np.random.default_rng(4).permutation(labels)
    assert_found(here(*mnist, (x, shuffled)), "model, labels or samples", "accuracy", "both engines agree on 100%")


def test_labels_must_belong_to_the_samples(mnist):
    for labels in (np.zeros(3, int), np.zeros(4), np.zeros((4, 1), int)):
        with pytest.raises(ValueError, match="one integer label for each of the 4 samples"):
            diagnose(*mnist, (np.zeros((4, 1, 28, 28), np.float32), labels))
    with pytest.raises(ValueError, match="at least one sample"):
        diagnose(*mnist, np.zeros((0, 1, 28, 28), np.float32))


# --- files and export --------------------------------------------------------------------------------------


def test_missing_and_broken_files_are_named(here, mnist, pixels, tmp_path):
    samples = digits(pixels, 20)
    junk = tmp_path / "junk.mnn"
    junk.write_bytes(b"junk")
    assert_found(here(mnist[0], tmp_path / "no.mnn", samples), "missing file", "files", "no.mnn does not exist")
    assert_found(here(tmp_path / "no.onnx", mnist[1], samples), "missing file", "files", "no.onnx")
    assert_found(here(mnist[0], junk, samples), "unreadable file", "files", "junk.mnn is not an MNN model")
    assert_found(here(junk, mnist[1], samples), "unreadable file", "files", "junk.mnn is no ONNX file")


@pytest.fixture(scope="module")
def split(mnist, tmp_path_factory):
    """mnist_cnn.onnx with its weights in a file of their own, and three .mnn files converted while that was away."""
    folder = tmp_path_factory.mktemp("split")
    path, weights = folder / "split.onnx", folder / "split.data"
    onnx.save_model(onnx.load(mnist[0]), path, save_as_external_data=True, location=weights.name, size_threshold=100)
    weights.rename(folder / "away")
    source = "import _tools, sys; [_tools.mnnconvert(['MNNConvert', '-f', 'ONNX', '--modelFile', sys.argv[1], "
    source += "'--MNNModel', name, '--bizCode', 'x']) for name in sys.argv[2:]]"
    broken = [folder / f"broken{index}.mnn" for index in range(3)]
    native.run_snippet(source, str(path), *map(str, broken))
    return path, weights, broken


def test_missing_external_data_is_found_where_it_is_missing(here, split, pixels):
    path, weights, broken = split
    assert not weights.exists()
    assert_found(here(path, broken[0], digits(pixels, 20)), "missing external data", "files", "split.data")


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("labelled", [True, False])
def test_an_mnn_converted_without_external_data_is_found(here, split, mnist, pixels, index, labelled, tmp_path):
    path, weights, broken = split
    samples = digits(pixels, 30) if labelled else digits(pixels, 30)[0]
    if labelled:
        path = mnist[0]  # the same weights, inside the file
    else:
        shutil.copy(weights.with_name("away"), tmp_path / weights.name)  # the weights came back, too late
        path = shutil.copy(path, tmp_path / path.name)
    found = here(path, broken[index], samples)
    assert_found(found, "missing external data", "weights", "layers hold other weights")


def test_an_mnn_in_which_only_the_external_weights_are_wrong_is_found(here, toy, shown, tmp_path):
    path = tmp_path / "toy.onnx"  # the Gemm's weights are large enough for the other file
    onnx.save_model(onnx.load(toy[0]), path, save_as_external_data=True, location="w.data", size_threshold=10_000)
    fault = faults.wrong_weights(toy[0], tmp_path / "wrong.onnx", 1)
    mnn = convert_onnx(fault.path, tmp_path / "wrong.mnn").path
    assert_found(here(path, mnn, shown), "missing external data", "weights", "1 of 2 layers")
    assert here(toy[0], mnn, shown).fault == "wrong weights"


BATCHNORM = dict(zip(("gain", "shift", "m1", "v1"), np.float32([[1] * 3, [0] * 3, [-0.9] * 3, [0.5] * 3]), strict=True))
NORMALISE = ("BatchNormalization", ["x", "gain", "shift", "m1", "v1"])


def test_training_mode_in_the_graph_is_found(here, toy, shown, tmp_path):
    graph = [(*NORMALISE, ["given", "m2", "v2"], {"training_mode": 1})]
    path = make_toy(tmp_path / "train.onnx", graph, extra=BATCHNORM)
    found = here(path, toy[1], shown)
    assert_found(found, "train-mode export", "export", "1 BatchNormalization in training mode", "moves by")
    assert_found(here(path, toy[1], shown[0] * np.nan), "train-mode export", "export")  # by the graph alone
    dropout = [("Dropout", ["x", "ratio", "training"], ["given"])]
    extra = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    path = make_toy(tmp_path / "dropout.onnx", dropout, extra=extra)
    assert_found(here(path, toy[1], shown), "train-mode export", "export", "1 Dropout in training mode")


def test_a_dropout_and_a_batchnorm_at_rest_are_fine(here, shown, tmp_path):
    graph = [(*NORMALISE, ["n"]), ("Dropout", ["n", "ratio", "training"], ["given"])]
    extra = BATCHNORM | {"ratio": np.array(0.5, np.float32), "training": np.array(False)}
    path = make_toy(tmp_path / "rest.onnx", graph, extra=extra)
    found = here(path, convert_onnx(path, tmp_path / "rest.mnn").path, shown[0])
    assert found.fault is None and found.steps[1].verdict == "fine", str(found)


@pytest.mark.parametrize(
    "graph",
    [
        [("ReduceMean", ["x", "axis"], ["mean"]), ("Sub", ["x", "mean"], ["given"])],
        [("RandomNormalLike", ["x"], ["noise"], {"scale": 0.5}), ("Add", ["x", "noise"], ["given"])],
    ],
    ids=["statistics of the batch", "chance"],
)
def test_training_mode_that_only_the_answers_betray_is_found(here, toy, shown, tmp_path, graph):
    path = make_toy(tmp_path / "moves.onnx", graph, extra={"axis": np.array([0])})
    assert_found(here(path, toy[1], shown), "train-mode export", "export", "look harmless, but an answer moves by")


def test_training_mode_that_torch_exports_is_found(here, mnist, pixels, tmp_path):
    import warnings

    import torch

    from helpers.model import load_pretrained

    model = load_pretrained().train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, torch.zeros(2, 1, 28, 28), tmp_path / "t.onnx", dynamo=False, input_names=["input"],
                          output_names=["logits"], dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)  # fmt: skip
    mnn = convert_onnx(tmp_path / "t.onnx", tmp_path / "t.mnn").path
    found = here(tmp_path / "t.onnx", mnn, digits(pixels, 30))
    assert_found(found, "train-mode export", "export", "2 BatchNormalization")


# --- weights, outputs, layers ------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [0, 2])
def test_fp16_overflow_is_found(here, mnist, pixels, tmp_path, layer):
    fault = faults.overflow_fp16(mnist[0], tmp_path / "large.onnx", layer)
    half = convert_onnx(fault.path, tmp_path / "half.mnn", fp16=True).path
    samples = digits(pixels, 20)[0]
    stored = {0: "a weight of -1e+06 is -65504", 2: "a weight of 1e+06 is 65504"}[layer]
    assert_found(here(fault.path, half, samples), "fp16 overflow", "weights", f"In {fault.node} {stored}")
    full = convert_onnx(fault.path, tmp_path / "full.mnn").path
    assert here(fault.path, full, samples).fault is None


def test_an_onnx_file_that_answers_nan_is_the_cause_itself(here, toy, shown, tmp_path):
    graph = [("Log", ["x"], ["given"])]  # of negative numbers
    path = make_toy(tmp_path / "log.onnx", graph)
    assert_found(here(path, toy[1], shown[0]), "NaN in answers", "outputs", "Already 100% of what ONNX Runtime returns")


@pytest.mark.parametrize("size, fault", [(1e6, "fp16 overflow"), (10, "NaN in answers")])
def test_nan_that_only_mnn_returns_is_laid_to_half_precision_if_numbers_are_large(
    here, shown, tmp_path, monkeypatch, size, fault
):
    graph = [("Mul", ["x", "up"], ["big"]), ("Mul", ["big", "down"], ["given"])]
    extra = {"up": np.array(size, np.float32), "down": np.array(1 / size, np.float32)}
    path = make_toy(tmp_path / "big.onnx", graph, extra=extra)
    mnn = convert_onnx(path, tmp_path / "big.mnn").path
    answers = np.zeros((len(shown[0]), 12), np.float32)
    answers[:20] = np.nan
    monkeypatch.setattr(diagnosis_models, "_ask_mnn", lambda *_: {"scores": answers})
    assert_found(here(path, mnn, shown), fault, "outputs", "10% of what MNN returns as 'scores' is NaN")


def test_an_engine_that_crashes_is_a_finding(here, mnist, pixels, monkeypatch):
    def crash(*_):
        raise native.NativeError("ended without a result: killed by SIGSEGV")

    monkeypatch.setattr(diagnosis_models, "_ask_mnn", crash)
    assert_found(here(*mnist, digits(pixels, 20)), "engine gives up", "outputs", "SIGSEGV")


@pytest.mark.parametrize("noise, fault", [(1.0, "diverging outputs"), (1e-6, None)])
def test_layers_that_cannot_be_compared_are_no_excuse_for_outputs_that_differ(
    here, mnist, pixels, monkeypatch, rng, noise, fault
):
    from helpers import parity

    def refuse(*_, **__):
        raise ValueError("no idea")

    asked = diagnosis_models._ask_mnn
    monkeypatch.setattr(parity, "layer_parity", refuse)
    monkeypatch.setattr(
        diagnosis_models, "_ask_mnn",
        lambda *a: {name: y + noise * 20 * rng.normal(size=y.shape) for name, y in asked(*a).items()},
    )  # fmt: skip
    found = here(*mnist, digits(pixels, 20))
    if fault:
        assert_found(found, fault, "layers", "The outputs do not agree", "no idea")
    else:
        assert found.fault is None and not found.ok and found.steps[-2].verdict == "skipped"


def two_outputs(path, first, second, width):
    after = [("Gemm", ["features", "v2"], ["more"])]
    after += [("Identity", ["scores"], [first]), ("Identity", ["more"], [second])]
    extra = {"v2": np.random.default_rng(2).normal(0, 0.1, (864, width)).astype(np.float32)}
    widths = {first: 12, second: width}
    return make_toy(path, after=after, extra=extra, outputs={name: widths[name] for name in ("class", "mood")})


@pytest.mark.parametrize("width, box", [(12, "outputs"), (5, "signature")])
def test_two_outputs_that_exchanged_their_names_are_found(here, shown, tmp_path, width, box):
    right = two_outputs(tmp_path / "right.onnx", "class", "mood", width)
    swapped = two_outputs(tmp_path / "swapped.onnx", "mood", "class", width)
    mnn = convert_onnx(swapped, tmp_path / "swapped.mnn").path
    assert_found(here(right, mnn, shown[0]), "swapped outputs", box, "class", "mood")
    assert_healthy(here(right, convert_onnx(right, tmp_path / "right.mnn").path, shown))


def test_layers_of_equal_size_are_paired_by_name_whatever_their_order(tmp_path):
    path = two_outputs(tmp_path / "a.onnx", "class", "mood", 12)
    mnn = convert_onnx(path, tmp_path / "a.mnn").path
    model = onnx.load(path)
    nodes = list(model.graph.node)
    first, second = (index for index, node in enumerate(nodes) if node.op_type == "Gemm")
    nodes[first : second + 1] = [nodes[second], *nodes[first:second]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "b.onnx")
    for file in (path, tmp_path / "b.onnx"):
        assert [layer.kind for layer in layer_faults.compare_weights(file, mnn)] == [None] * 3


def test_outputs_swapped_in_both_files_are_found_by_the_labels(here, shown, tmp_path):
    swapped = two_outputs(tmp_path / "swapped.onnx", "mood", "class", 12)
    mnn = convert_onnx(swapped, tmp_path / "swapped.mnn").path
    assert_found(here(swapped, mnn, shown), "swapped outputs", "accuracy", "by 'mood' 100 %")


NAMES = {
    faults.scale_weight: "scaled weight",
    faults.wrong_weights: "wrong weights",
    faults.quantize_weight: "quantized layer",
    faults.drop_bias: "dropped bias",
    faults.remove_relu: "removed ReLU",
    faults.change_padding: "padding",
}
RELUS_AND_PADS = faults.remove_relu, faults.change_padding


def assert_named(here, plant, pair, layer, samples, folder):
    fault = plant(pair[0], folder / "faulty.onnx", layer)
    mnn = convert_onnx(fault.path, folder / "faulty.mnn").path
    found = here(pair[0], mnn, samples)
    assert_found(found, NAMES[plant], "layers", "is the first layer that differs")
    if plant not in RELUS_AND_PADS:
        assert found.evidence.startswith(f"{fault.node} ")


@pytest.mark.parametrize("plant", NAMES, ids=lambda plant: plant.__name__)
def test_a_fault_in_a_layer_of_the_digit_classifier_is_named(here, mnist, pixels, tmp_path, plant):
    layer = {faults.quantize_weight: 0, faults.drop_bias: 2, faults.remove_relu: 2}.get(plant, 1)
    assert_named(here, plant, mnist, layer, digits(pixels, 40)[0], tmp_path)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("plant", NAMES, ids=lambda plant: plant.__name__)
def test_a_fault_in_a_layer_of_the_colour_classifier_is_named(here, toy, shown, tmp_path, plant, layer):
    if layer == 1 and plant is faults.remove_relu:
        layer = 0  # it has only one
    assert_named(here, plant, toy, layer, shown[0], tmp_path)


def test_weights_stored_in_few_bits_are_called_quantized(here, mnist, pixels, tmp_path):
    w8 = convert_onnx(mnist[0], tmp_path / "w8.mnn", weight_bits=8).path
    assert_found(here(mnist[0], w8, digits(pixels, 40)), "quantized layer", "layers", "stored in 8 bits", "3 more")


def test_a_pair_from_two_trainings_is_found(here, mnist, pixels, tmp_path):
    import torch

    from helpers.model import MnistCNN
    from helpers.onnx_export import export_onnx

    torch.manual_seed(1)
    export_onnx(MnistCNN(), tmp_path / "other.onnx")
    mnn = convert_onnx(tmp_path / "other.onnx", tmp_path / "other.mnn").path
    found = here(mnist[0], mnn, digits(pixels, 30))
    assert_found(found, "pair not made from each other", "weights", "4 of 4 layers hold other weights")


def test_a_pair_of_two_models_is_found(here, mnist, toy, shown, pixels, tmp_path):
    found = here(mnist[0], toy[1], digits(pixels, 30))
    assert_found(found, "pair not made from each other", "signature", "'input'", "'x'")
    deeper = [("Conv", ["x", "w0"], ["given"], {"pads": [1, 1, 1, 1]})]
    w0 = {"w0": np.random.default_rng(0).normal(0, 0.5, (3, 3, 3, 3)).astype(np.float32)}
    path = make_toy(tmp_path / "deeper.onnx", deeper, extra=w0)
    mnn = convert_onnx(path, tmp_path / "deeper.mnn").path
    found = here(toy[0], mnn, shown)
    assert_found(found, "pair not made from each other", "layers", "2 layers with weights, the .mnn 3")


def test_a_batch_that_became_fixed_is_no_pair(here, mnist, one_by_one, pixels):
    assert_found(here(mnist[0], one_by_one[1], digits(pixels, 20)), "pair not made from each other", "signature")


def test_weights_behind_a_batchnorm_are_recognised(tmp_path):
    from tiny_onnx import save_onnx

    rng = np.random.default_rng(8)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)), "b": rng.normal(size=4), "g": rng.uniform(0.5, 2, 4),
               "s": rng.normal(size=4), "m": rng.normal(size=4), "v": rng.uniform(0.5, 2, 4)}  # fmt: skip
    path = save_onnx(
        tmp_path / "bn.onnx",
        [("Conv", ["x", "w", "b"], ["c"]), ("BatchNormalization", ["c", "g", "s", "m", "v"], ["y"])],
        {"x": ("float32", ["batch", 3, 8, 8])}, {"y": ("float32", ["batch", 4, 6, 6])},
        {name: array.astype(np.float32) for name, array in weights.items()},
    )  # fmt: skip
    mnn = convert_onnx(path, tmp_path / "bn.mnn").path
    assert [entry.kind for entry in layer_faults.compare_weights(path, mnn)] == [None]
    fault = faults.scale_weight(path, tmp_path / "scaled.onnx", factor=0.9)
    mnn = convert_onnx(fault.path, tmp_path / "scaled.mnn").path
    assert [entry.kind for entry in layer_faults.compare_weights(path, mnn)] == ["scaled weight"]


# --- guesses and statistics --------------------------------------------------------------------------------


def test_each_guess_undoes_what_it_is_named_for(rng):
    x = normalised(rng.uniform(size=(5, 3, 6, 6)).astype(np.float32))

    def after(changed, words):
        return next(y for _, _, w, y in guesses(np.ascontiguousarray(changed, np.float32)) if w == words)

    def same(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

    same(after(x[:, ::-1], "swapping channels 0 and 2"), x)
    same(after(x.transpose(0, 2, 3, 1).reshape(x.shape), "reading the memory as height, width, channels"), x)
    same(after(x.swapaxes(2, 3), "swapping height and width"), x)
    same(after(-x, "inverting the brightness"), x - x.max() - x.min())
    y = after(x * STD + 7, "standardised channel by channel")
    same(y.mean(axis=(0, 2, 3)), 0)
    same(y.std(axis=(0, 2, 3)), 1)
    wide = x[:, :, :4]  # [5, 3, 4, 6], fed as the memory of [5, 3, 6, 4]
    same(after(np.ascontiguousarray(wide.swapaxes(2, 3)).reshape(wide.shape), "swapping height and width"), wide)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))  # a model that takes [N, H, W, C]
    same(after(last[..., ::-1], "swapping channels 0 and 2"), last)
    same(after(x.reshape(last.shape), "reading the memory as channels, height, width"), last)
    same(after(last.swapaxes(1, 2), "swapping height and width"), last)


def test_chance_is_the_tail_of_a_fair_coin():
    before, after = np.zeros(10, bool), np.ones(10, bool)
    assert chance(before, after) == 1 / 2**10
    after[0], before[1], after[1] = False, True, False  # 8 repaired, 1 broken of 9 changed
    assert chance(before, after) == (9 + 1) / 2**9
    assert chance(before, before) == 1


def test_a_repair_takes_a_third_of_the_errors_away():
    before = np.arange(100) >= 30
    assert repairs(before, np.arange(100) >= 20)
    assert not repairs(before, np.arange(100) >= 21)
    assert not repairs(np.ones(5, bool), np.ones(5, bool))


def test_the_fewest_samples_are_those_with_which_a_perfect_repair_is_clear():
    for tries in (1, 5, 13):
        count = fewest(tries)
        assert tries / 2**count <= hypotheses.CHANCE < tries / 2 ** (count - 1)


def test_the_interval_covers_the_truth_in_95_of_100_cases(rng):
    covered = 0
    for _ in range(2000):
        low, high = interval(int((rng.uniform(size=60) < 0.9).sum()), 60)
        covered += low <= 0.9 <= high
    assert 0.93 < covered / 2000 < 0.98


def test_importing_the_package_loads_neither_numpy_nor_the_diagnosis():
    source = "import sys, helpers; print('numpy' in sys.modules, 'helpers.diagnosis' in sys.modules); helpers.diagnose"
    assert native.run_snippet(source).log.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = helpers.nonsense
