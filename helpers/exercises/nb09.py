"""The exercises of notebook 09: right answers come from the data, another engine, or a run."""

import math
import tempfile
from pathlib import Path

import numpy as np

from .. import faults
from ..checks import Correct, exercise
from ..convert import convert_onnx
from ..data import arrays, test_set
from ..native import last_lines, run_snippet
from ..paths import ARTIFACTS

SEED = 0
"""Which fault is planted where in exercise 09.5."""


@exercise("09.1", hint="np.bincount(labels) counts how often each digit is the right answer.")
def best_constant_answer(answer):
    digit, share = int(answer[0]), float(answer[1])
    _, labels = arrays(train=False)
    counts = np.bincount(labels)
    best = int(counts.argmax())
    if digit == best and math.isclose(share, counts[best] / len(labels), abs_tol=6e-4):
        return Correct("an accuracy near this one means: perhaps the answers do not depend on the input at all.")
    first = np.bincount(labels[:100])
    if digit == int(first.argmax()) and math.isclose(share, first.max() / 100, abs_tol=6e-3):
        return "That is true of the first 100 images. The question is about all 10,000."
    if digit == best and share > 1:
        return f"The digit is right. Give the share from 0 to 1, not {share:g}."
    if 0 <= digit <= 9 and math.isclose(share, counts[digit] / len(labels), abs_tol=6e-4):
        return f"Always {digit} scores that, but another digit is more frequent."
    if 0 <= digit <= 9:
        return f"Always {digit} would be right {counts[digit]:,} times in {len(labels):,}."
    return "The first of the two must be a digit."


@exercise("09.2", hint="10 · log10(signal² / error²), with an error of 0.01 times the signal.")
def decibels_of_one_percent(answer):
    answer = float(answer)
    if math.isclose(answer, 40, abs_tol=0.1):
        return Correct("a factor of 10 in the numbers is 100 in their squares, 20 dB; one percent is two such factors.")
    if math.isclose(answer, 20, abs_tol=0.1):
        return "The formula takes squares: of 1/100 first the square, then the logarithm."
    if math.isclose(answer, -40, abs_tol=0.1):
        return "The signal stands above, the error below: large numbers are good ones."
    if math.isclose(answer, 20 * math.log(100), rel_tol=0.01):
        return "That is the natural logarithm; decibels use the one to base 10."
    return f"{answer:g} dB would be an error of {100 * 10 ** (-answer / 20):.3g} % of the signal."


@exercise("09.3", hint="reshape to (groups, H, W, pack), move `pack` behind the groups, drop what is beyond C.")
def unpacked(answer):
    if not callable(answer):
        return "Give the function itself: answer = unpack."
    rng = np.random.default_rng(9)
    for (channels, height, width), pack in (((5, 3, 4), 4), ((6, 2, 3), 8), ((8, 3, 2), 4), ((20, 2, 2), 16)):
        groups = -(-channels // pack)
        padded = np.zeros((groups * pack, height, width), np.float32)
        padded[:channels] = 1 + rng.permutation(channels * height * width).reshape(channels, height, width)
        flat = padded.reshape(groups, pack, height, width).transpose(0, 2, 3, 1).ravel()
        shape, expected = (1, channels, height, width), padded[None, :channels]
        case = f"{channels} channels of {height} × {width}, {pack} side by side"
        found = np.asarray(answer(flat.copy(), shape, pack))
        if found.shape == (1, groups * pack, height, width) != shape and np.array_equal(found[:, :channels], expected):
            return "The order is right; the padding channels are still in it."
        if found.shape != shape:
            return f"Expected the shape {list(shape)}, found {list(found.shape)} ({case})."
        if np.array_equal(found.ravel(), flat[: found.size]):
            return "Those are the first numbers as they come; neighbours in `flat` belong to different channels."
        if not np.array_equal(found, expected):
            return f"The shape is right, the order isn't ({case}): which index runs fastest in `flat`?"
    return Correct("the pack runs fastest, then width, height, and the group of channels last.")


@exercise("09.4", hint="Three: is anything written, does an answer survive the next run, how many threads work?")
def repaired_source(answer):
    if not isinstance(answer, str) or "def logits_of" not in answer:
        return "Give the source as text, with `def logits_of(path, images):` in it."
    images, _ = test_set()
    images = images[:20]
    expected = _reference(images)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "images.npy"), Path(folder, "made.npz")
        np.save(given, images)
        program = _PROGRAM.format(answer=answer)
        finished = run_snippet(program, str(ARTIFACTS / "mnist_cnn.mnn"), str(given), str(made))
        if finished.returncode < 0 or finished.returncode > 255:
            return f"The process was {finished.ending}. Your kernel is alive, since the text ran in a child process."
        if finished.returncode:
            there = " Only MNN and np are there." if "NameError" in finished.log else ""
            return f"It raised: {last_lines(finished.log, 1)}.{there}"
        with np.load(made) as saved:
            found, threads = saved["logits"], int(saved["threads"])
    if found.shape != expected.shape:
        return f"20 images have logits {list(expected.shape)}; your function returned {list(found.shape)}."
    right = np.isclose(found, expected, atol=1e-3).all(axis=1)
    if right.all() and threads > 1:
        return f"The logits are right, on {threads} threads. Which key of the session's dict counts?"
    if right.all():
        return Correct("written, copied before the next run overwrites it, and on one thread.")
    same = bool((found == found[0]).all())
    if same and right[-1]:
        return "Only the last image's answer is right, and it stands there 20 times: all rows show the same memory."
    if same:
        return "All 20 rows are the same, and not even the last is right: that is more than one fault."
    return f"{int(right.sum())} of 20 rows are right, and the rows differ: do they depend on the images?"


_PROGRAM = """
import sys, MNN, numpy as np, psutil
images = np.load(sys.argv[2])
{answer}
before = psutil.Process().num_threads()
logits = logits_of(sys.argv[1], images)
np.savez(sys.argv[3], logits=logits, threads=psutil.Process().num_threads() - before + 1)
"""
"""What exercise 09.4 runs: arguments are the model, the images and the file to write."""


def mystery_pair():
    """Paths of the good ONNX file and of the .mnn (half-precision weights) made from a copy with one planted fault."""
    source, folder = ARTIFACTS / "mnist_cnn.onnx", ARTIFACTS / "nb09"
    sealed = _sealed(folder / "mystery.onnx")
    return source, convert_onnx(sealed.path, folder / "mystery.mnn", fp16=True).path


def _sealed(path):
    return faults.mystery(ARTIFACTS / "mnist_cnn.onnx", path, SEED)


@exercise("09.5", hint="layer_parity(good_onnx, bad_mnn, images[:16]): which layer falls out of line by its own SNR?")
def mystery_node(answer):
    import onnx

    from ..onnx_export import summary

    with tempfile.TemporaryDirectory() as folder:
        sealed = _sealed(Path(folder, "mystery.onnx"))
    if sealed.is_in(answer):
        return Correct(f"{sealed.reveal()}.")
    nodes = [node.name for node in summary(ARTIFACTS / "mnist_cnn.onnx").nodes]
    if answer not in nodes:
        graph = onnx.load(ARTIFACTS / "mnist_cnn.onnx", load_external_data=False).graph
        if answer in {name for node in graph.node for name in node.output}:
            return "That is a tensor. Give the name of the node that makes it."
        return f"{answer!r} is no node of this network; its nodes are {', '.join(nodes)}."
    fault = nodes.index(sealed.reveal().node)
    if nodes.index(answer) > fault:
        return f"{answer} gets wrong numbers and works correctly on them: the cause lies before it."
    return f"{answer} differs by no more than half precision explains; go further down."


def _reference(images):
    """Logits by another engine."""
    from ..runtime import OrtModel

    return OrtModel(ARTIFACTS / "mnist_cnn.onnx")(images)
