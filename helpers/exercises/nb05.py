"""Exercises of notebook 05. Right answers are measured here, from the files in the artifacts folder."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from helpers.checks import Correct, exercise
from helpers.convert import ConversionError, convert_onnx
from helpers.paths import ARTIFACTS

SOURCE = ARTIFACTS / "mnist_cnn.onnx"


@cache
def _file(**settings):
    """Path of SOURCE converted with these settings of convert_onnx; made once."""
    name = "_".join(f"{key}-{value}" for key, value in sorted(settings.items())) or "plain"
    return convert_onnx(SOURCE, ARTIFACTS / "nb05" / f"exercise_{name}.mnn", **settings).path


def _size(**settings):
    return _file(**settings).stat().st_size


def _near(answer, value, share=0.0025):
    return abs(answer - value) <= share * value


@exercise(
    "05.1",
    hint="weights shrink to 6 bits each; biases, scales and the rest do not. The table of bytes has all you need.",
)
def size_of_the_six_bit_file(answer):
    answer = float(answer)
    from helpers.onnx_export import summary

    parameters, right = summary(SOURCE).parameters, _size(weight_bits=6)
    if _near(answer, right, 0.01):
        return Correct(f"The file has {right:,} bytes: weights at 6 bits, and all else as long as before.")
    if _near(answer, parameters * 6, 0.02):
        return "That is a number of bits. A byte has 8 of them."
    if _near(answer, parameters * 6 / 8):
        return "Those are the weights alone; the file also holds biases, scales, names and shape arithmetic."
    if _near(answer, _size() * 6 / 32):
        return "You shrank the whole file to 6/32. Only the weights shrink; all else stays as long as it was."
    return f"The file is {'smaller' if answer > right else 'larger'} than that."


_LOG = "Start to Convert Other Model Format To MNN Model..., target version: 3.6\n"
_GOOD = _LOG + "inputTensors : [ input, ]\noutputTensors: [ logits, ]\nConverted Success!\nmnnconvert returned True\n"
_CASES = (  # log, is there a file, what to return, the hint when it isn't returned
    (_GOOD, True, True, "It turns down a conversion that went well: 'Converted Success!' in the log, and a file."),
    ("Model File Does Not Exist! ==> no_such.onnx\nmnnconvert returned True\n", True, False,
     "It is fooled by an old file: the log of a missing source, and a file that was there before."),
    ("Not support option: inputImageSize\n" + _GOOD, True, False,
     "It is fooled by an ignored option: the log begins with 'Not support option' and still ends with success."),
    (_LOG + "Key Error!\n", True, False,
     "It is fooled by an old file: a log that stops half-way, and the file of last time."),
    ("", True, False, "It is fooled by an old file: the tool said nothing at all, and the file of last time is there."),
    (_GOOD, False, False, "It never looks for the file: with a good log and no file it still says True."),
    (_LOG + "Key Error!\n", False, False, "It takes a crash for a success: a log that stops half-way, and no file."),
)  # fmt: skip


@exercise("05.2", hint="the file must exist, and the log must have the good words and not the bad ones.")
def a_function_that_is_not_fooled(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = succeeded), found {type(answer).__name__}."
    with tempfile.TemporaryDirectory() as folder:
        there, missing = Path(folder, "model.mnn"), Path(folder, "none.mnn")
        there.write_bytes(b"model")
        for log, exists, expected, hint in _CASES:
            if bool(answer(log, there if exists else missing)) != expected:
                return hint
    return Correct("It needs both witnesses, log and file. Comparing the answers is still left to do.")


@exercise("05.3", hint="BatchNorm's formula with the convolution's old bias as x gives the new bias.")
def biases_with_batchnorm_folded_in(answer):
    import onnx

    from helpers.model import load_weights

    if hasattr(answer, "detach"):
        answer = answer.detach().float().numpy()
    answer = np.array([float(value) for value in answer])  # also a list of tensors
    if answer.shape != (16,):
        return f"16 numbers are expected, one for each channel; found {len(answer)}."
    graph = onnx.load(SOURCE).graph  # the exporter folded it too, on its own
    name = next(node for node in graph.node if node.op_type == "Conv").input[2]
    right = onnx.numpy_helper.to_array(next(tensor for tensor in graph.initializer if tensor.name == name))
    if np.allclose(answer, right, atol=1e-4):
        return Correct("With the weights scaled by the same factor, BatchNorm needs no operator any more.")
    features = load_weights(ARTIFACTS / "mnist_cnn.pt").features
    old, norm = features[0].bias.detach().numpy(), features[1]
    numbers = norm.weight, norm.bias, norm.running_mean, norm.running_var
    scale, shift, mean, variance = (tensor.detach().numpy().astype(np.float64) for tensor in numbers)
    deviation = np.sqrt(variance + norm.eps)
    for mistake, hint in (
        (old, "Those are the biases before folding."),
        ((old - mean) / (variance + norm.eps) * scale + shift, "You divided by the variance; its root is meant."),
        ((old - mean) / deviation * scale, "BatchNorm's own bias, which is added at the end, is missing."),
        (shift - mean / deviation * scale, "The convolution had a bias before; it goes through BatchNorm as well."),
    ):
        if np.allclose(answer, mistake, atol=1e-4):
            return hint
    return f"The numbers are off by up to {np.abs(answer - right).max():.2g}. Put the old bias in the place of x."


@exercise("05.4", hint="a block has to fit 1,568 inputs without a remainder, and that isn't all. Convert and count.")
def the_largest_block_in_use(answer):
    answer = int(answer)
    if not 1 <= answer <= 128:
        return "A number from 1 to 128 is asked for."

    def used(block):
        # More scales in the layer with 128 outputs: at least one more for each of them, 4 bytes each.
        return _size(weight_bits=4, weight_block=block) >= _size(weight_bits=4) + 4 * 128

    if 1568 % answer:
        return f"1,568 divided by {answer} leaves {1568 % answer}: the layer falls back to one scale a channel."
    if not used(answer):
        return f"{answer} divides 1,568, but the file has no more scales than without blocks. Try the other divisors."
    larger = next((block for block in range(128, answer, -1) if 1568 % block == 0 and used(block)), None)
    if larger:
        return f"{answer} is used, but a larger one up to 128 is too."
    return Correct(f"{answer} divides 1,568 and is a multiple of 16; a size that isn't both is ignored without a word.")


@exercise("05.5", hint="write a dict such as dict(weight_bits=5), and look at the left end of the picture.")
def the_smallest_file_that_still_works(answer):
    from helpers.data import test_set
    from helpers.runtime import MnnModule

    if not isinstance(answer, dict):
        return f"A dict of settings is expected, such as dict(weight_bits=5); found {type(answer).__name__}."
    try:
        path = _file(**{key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()})
    except (TypeError, ValueError, ConversionError) as error:
        return f"convert_onnx refuses these settings: {str(error).splitlines()[0]}"
    size = path.stat().st_size
    if size >= 100_000:
        return f"The file has {size:,} bytes, not below 100,000: use fewer bits, or fewer scales."
    images, _ = test_set()

    def predictions(path):
        model = MnnModule(path, threads=2)
        return np.concatenate([model(batch).argmax(1) for batch in np.split(images, 40)])

    reference = predictions(_file())
    changed = int((predictions(path) != reference).sum())
    best = min(
        int((predictions(_file(weight_bits=3, asymmetric=scheme)) != reference).sum()) for scheme in (False, True)
    )
    if changed <= best:
        return Correct(f"{size:,} bytes, {changed} changed: an offset for each channel is cheap and buys a lot.")
    if changed > 4 * best:
        return f"{changed:,} predictions changed: you went over the cliff. There is room for another bit."
    return f"Small enough, but {changed} predictions changed and {best} would do. Keep the bits, change the scheme."
