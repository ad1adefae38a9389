"""The exercises of notebook 06: right answers are computed from the data or measured, wrong ones recognised."""

import math

import numpy as np

from ..checks import Correct, exercise
from ..data import MEAN, STD, normalize, test_set
from ..native import NativeError, call, quietly
from ..paths import ARTIFACTS


def camera(pixels):
    """The camera module of exercise 06.5: uint8 [N, 28, 28] → float32 [N, 1, 28, 28], not as its data sheet says."""
    return np.ascontiguousarray(normalize(255 - pixels).transpose(0, 1, 3, 2))


@exercise("06.1", hint="Rearrange (x / 255 - 0.1307) / 0.3081 until it reads (x - …) * …, with x a byte.")
def one_step_normalization(answer):
    mean, normal = (float(number) for number in answer)
    right_mean, right_normal = 255 * MEAN, 1 / (255 * STD)

    def near(a, b):
        return math.isclose(a, b, rel_tol=2e-3)

    if near(mean, right_mean) and near(normal, right_normal):
        return Correct("the mean in bytes, and the reciprocal of the deviation in bytes, because the tool multiplies.")
    if near(normal, 1 / right_normal):
        return "The tool multiplies by `normal`; you gave the deviation itself, which one would divide by."
    if near(mean, MEAN) and (near(normal, 1 / STD) or near(normal, STD)):
        return "Those numbers belong to pixels from 0 to 1; here the bytes from 0 to 255 come in."
    if near(mean, right_mean) and near(normal, 1 / STD):
        return "The mean is right. The factor has to undo the 255 as well."
    white, right_white = (255 - mean) * normal, (1 - MEAN) / STD
    return f"With these numbers a white pixel becomes {white:.3f}; normalize() makes it {right_white:.3f}."


@exercise("06.2", hint="The table of threads shows which key counts, and what a 2 there gives in all.")
def three_threads(answer):
    if not isinstance(answer, dict):
        return "A runtime manager takes a dict, like {'backend': 0}."
    try:
        threads, _ = call("helpers.exercises.nb06:_threads_with", ARTIFACTS / "mnist_cnn.mnn", answer)
    except SystemError:
        return "create_runtime_manager refuses this dict. It takes plain Python numbers: int(…) makes one."
    except NativeError as error:
        return f"The process that tried this config died: {error.log.strip().splitlines()[-1:]}"
    if threads == 3:
        return Correct("numThread counts the calling thread: two workers were started beside it.")
    if "numThread" not in answer:
        return f"Unknown keys are ignored without a word: with {answer} MNN computed on {threads} thread(s)."
    return f"With {answer} the process computed on {threads} thread(s) in all; the calling thread is one of them."


def _threads_with(path, config):
    """How many threads compute when the model runs with this config. In a child process only."""
    import psutil

    with quietly():
        import MNN.expr as expr
        import MNN.nn as nn

        before = psutil.Process().num_threads()
        runtime = nn.create_runtime_manager((config,))
        net = nn.load_module_from_file(str(path), ["input"], ["logits"], runtime_manager=runtime)
        x = expr.placeholder([1, 1, 28, 28], expr.NCHW, expr.float)
        x.write(np.zeros((1, 1, 28, 28), np.float32))
        net.forward(x).read()
    return psutil.Process().num_threads() - before + 1


@exercise("06.3", hint="interval(round(0.99 * n), n) for growing n, until both ends are within 0.005 of 0.99.")
def images_for_half_a_point(answer):
    answer = float(answer)
    needed = 1.96**2 * 0.99 * 0.01 / 0.005**2  # 1,521 by the normal approximation

    def near(other):
        return 0.9 <= answer / other <= 1.1

    exact = 2_300  # where both ends of the exact interval, the lower of which reaches further, are near enough
    if 0.9 * needed <= answer <= 1.1 * exact:
        return Correct("the interval shrinks with the square root of n: half of it costs four times the images.")
    if near(4 * needed):
        return "That makes the whole interval half a point wide; the customer allows half a point to either side."
    if near(needed * 0.25 / (0.99 * 0.01)):
        return "That is right for an accuracy of 50 %, the worst case. Near 99 % the counts scatter far less."
    if near(needed / 1.96**2):
        return "That is one standard deviation to either side, a 68 % interval; 95 % needs 1.96 of them."
    half = 1.96 * math.sqrt(0.99 * 0.01 / answer)
    verdict = "Too few" if answer < needed else "More than needed"
    return f"{verdict}: with {answer:,.0f} images the interval reaches about {100 * half:.2f} points to either side."


@exercise("06.4", hint="Each row shows memory that belongs to what forward() returned. How long does that live?")
def rows_that_last(answer):
    if not callable(answer):
        return "Give the function itself: answer = collect."
    with quietly():
        import MNN.nn as nn

        net = nn.load_module_from_file(str(ARTIFACTS / "mnist_cnn.mnn"), ["input"], ["logits"])
        images, _ = test_set()
        images = images[:20]
        expected = _reference(images)
        counted = _Counted(net)
        found = np.array(answer(counted, images))
    if found.shape != expected.shape:
        return f"20 images have logits {list(expected.shape)}; your function returned {list(found.shape)}."
    right = int(np.isclose(found, expected, atol=1e-3).all(axis=1).sum())
    if right == 20 and counted.calls < 20:
        return "The logits are right, but not computed one image at a time."
    if right == 20:
        return Correct("copied while the output variable was alive, every row keeps its own numbers.")
    if np.allclose(found.sum(axis=1), 1, atol=1e-3) and (found >= 0).all():
        return "Those are probabilities; logits are asked for, the numbers before the softmax."
    if counted.calls and 1 < len(np.unique(found.round(4), axis=0)) < 20:
        return f"Only {right} of 20 rows are right. After the loop it is too late to copy: their memory was used again."
    return f"{right} of 20 rows are right; the others are no logits of these images. What does the network get?"


class _Counted:
    """A module that counts its forward passes."""

    def __init__(self, net):
        self._net, self.calls = net, 0

    def __getattr__(self, name):
        return getattr(self._net, name)

    def forward(self, x):
        self.calls += 1
        return self._net.forward(x)

    __call__ = forward


@exercise("06.5", hint="Compare `delivered` with `images`: where the ink is, then the values of background and ink.")
def repaired_camera(answer):
    if not callable(answer):
        return "Give a function that takes the camera's array and returns the repaired one."
    # New images, so that values count; two of them reach neither black nor white.
    dice = np.random.default_rng(6)
    pixels = np.concatenate([dice.integers(*ends, (2, 28, 28), dtype=np.uint8) for ends in ((0, 256), (40, 180))])
    given, expected = camera(pixels), normalize(pixels)
    found = np.asarray(answer(given.copy()))
    if found.shape != expected.shape:
        return f"The repaired array must keep the shape {list(expected.shape)}; yours has {list(found.shape)}."
    if np.allclose(found, expected, atol=1e-4):
        return Correct("rows and columns were swapped, and the colours inverted before they were normalized.")
    shift = (1 - 2 * MEAN) / STD
    if np.allclose(found, expected - shift, atol=1e-4):
        return "Ink and background are the right way round now, but shifted: 1 - x was normalized, which is not -x."
    if np.allclose(found, shift - expected, atol=1e-4):
        return "The positions are right; look at the values: which number does the background have?"
    if np.allclose(found.transpose(0, 1, 3, 2), expected, atol=1e-4):
        return "The values are right; look at the positions: which way do the strokes run?"
    if np.allclose(found.transpose(0, 1, 3, 2), expected - shift, atol=1e-4):
        return "The positions are still swapped, and the values are shifted: 1 - x was normalized, which is not -x."
    if any(np.allclose(*pair, atol=1e-4) for pair in zip(found, expected, strict=True)):
        return "Right for some images only: black and white are 0 and 255, also where an image reaches neither."
    if np.allclose(np.sort(found.ravel()), np.sort(expected.ravel()), atol=1e-4):
        return "The values are right, their places are not: which way do the strokes run?"
    ranges = (f"{values.min():.3f} to {values.max():.3f}" for values in (found, expected))
    return "Your values run from {}, expected: {}.".format(*ranges)


def _reference(images):
    """Logits by another engine."""
    from ..runtime import OrtModel

    return OrtModel(ARTIFACTS / "mnist_cnn.onnx")(images)
