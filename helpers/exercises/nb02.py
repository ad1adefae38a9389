"""Exercises of notebook 02: tolerances, opsets, normalization."""

import functools
import math
import tempfile
from pathlib import Path

import numpy as np

from ..checks import Correct, exercise
from ..data import MEAN, STD, arrays, normalize
from ..distance import compare
from ..model import load_weights
from ..onnx_export import export_onnx
from ..paths import ARTIFACTS, short
from ..runtime import OrtModel


@exercise("02.1", hint="write down |c - r| <= atol + rtol * |r| with r = 2.0 and solve it for the largest c.")
def largest_value_that_passes(answer):
    value = float(answer)
    mistakes = {
        2.002: "That is rtol alone. At this size atol is small, but it is added.",
        2.0001: "That is atol alone. rtol times the reference is added to it.",
        2.0011: "rtol is a share of the reference, so it counts |r| times; here |r| is not 1.",
        0.0021: "That is how far it may be away. The question is for the value itself.",
        1.9979: "That is the smallest value that passes.",
    }
    if math.isclose(value, 2.0021, rel_tol=0, abs_tol=1e-6):  # float32 will do
        return Correct("2.0 + 1e-4 + 1e-3 * 2.0: the reference decides how much is allowed, not the candidate.")
    for wrong, words in mistakes.items():
        if math.isclose(value, wrong, rel_tol=0, abs_tol=1e-6):
            return words
    return f"With {value:g} the difference is {abs(value - 2.0):g}; allowed is atol + rtol * 2.0."


@functools.cache
def _delivered(opset):
    """The opset in the file when the default exporter is asked for `opset`."""
    with tempfile.TemporaryDirectory() as folder:
        return export_onnx(load_weights(ARTIFACTS / "mnist_cnn.pt"), Path(folder) / "asked.onnx", opset=opset).opset


@exercise("02.2", hint="ask for one opset after the other, from 18 downwards, and print what the file has.")
def smallest_opset(answer):
    if int(answer) != float(answer) or not 7 <= int(answer) <= 30:
        return "An opset is a whole number; those of today lie between 7 and 30."
    answer = int(answer)
    got = _delivered(answer)
    if got != answer:
        return f"Asked for {answer}, the exporter wrote a file of opset {got}. Look at .opset of what it returns."
    if _delivered(answer - 1) == answer - 1:
        if answer == 18:
            return "18 is the oldest it builds itself; afterwards ONNX's converter tries to go further down."
        return f"{answer} is delivered, but so is a smaller one."
    return Correct(f"{answer - 1} is asked for in vain: the version converter has no way down from {answer}.")


def _model(name="mnist_cnn.onnx"):
    return OrtModel(ARTIFACTS / name)


def colleagues_logits():
    """What mnist_cnn.onnx answers for the first 1,000 test images, wrongly fed in some way: float32 [1000, 10]."""
    images = normalize(arrays(train=False)[0][:1000])
    return _model()(((images - MEAN) / STD).astype(np.float32))


@exercise("02.3", hint="run session on feeds[key][:1000] for each key, and compare() the logits with mystery.")
def which_feed(answer):
    answer = answer.strip().lower()
    if answer == "twice":
        return Correct("only this feed reproduces the logits; the accuracy alone hardly tells it from the right one.")
    words = {
        "right": "The digits are nearly all the same, the logits are not: compare the logits.",
        "missing": "That feed gets far more digits wrong than these logits do. Count them.",
        "raw pixels": "Raw pixels give logits hundreds of times as large. Look at the largest one.",
        "inverted": "With inverted images hardly any digit would be right; here nearly all are.",
    }
    return words.get(answer, "That is no key of `feeds`.")


@exercise("02.4", hint="in forward: divide by 255, subtract MEAN, divide by STD; then export as in section 1.")
def from_pixels(answer):
    path = Path(answer)
    if not path.is_file():
        return f"There is no file {short(path)}. Export first; the answer is the path that you exported to."
    pixels = arrays(train=False)[0][:200]
    raw = pixels[:, None].astype(np.float32)
    wanted = _model()(normalize(pixels))
    run = OrtModel(path)
    (spec,) = run.inputs.values()
    if spec.dtype != np.float32 or len(spec.shape) != 4:
        return f"It takes {spec}; float32 [N, 1, 28, 28] is asked for."
    if isinstance(spec.shape[0], int):
        return f"It takes {spec.shape[0]} images at a time and no other number. Give dynamic_shapes."
    few = pixels[:3] // 2  # another batch, without any white
    if compare(wanted, run(raw)).ok:
        if not compare(_model()(normalize(few)), run(few[:, None].astype(np.float32))).ok:
            return "Right for 200 images, wrong for three darker ones: what one image gives depends on the others."
        return Correct("pixels in, logits out: the normalization travels with the file, and nobody can forget it.")
    if compare(wanted, run(normalize(pixels))).ok:
        return "There is no normalization in this graph: it still wants normalized images."
    if compare(wanted, run(raw / 255)).ok:
        return "It wants pixels from 0 to 1: the division by 255 is missing."
    if compare(_model()(raw / 255), run(raw)).ok:
        return "It divides by 255 and stops there: MEAN and STD are missing."
    return f"For raw pixels it gives other logits than mnist_cnn.onnx for normalized ones: {compare(wanted, run(raw))}."
