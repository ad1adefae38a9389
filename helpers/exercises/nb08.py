"""Exercises of notebook 08. Right answers are computed here, from the files in the artifacts folder."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from helpers.checks import Correct, exercise
from helpers.paths import ARTIFACTS


@exercise("08.1", hint="254 steps lie between -127 and 127. The zero point is the integer at which 0.0 lands.")
def scale_and_zero_point(answer):
    scale, zero = answer
    scale, right = float(scale), 5 / 254
    if abs(scale - right) <= 0.01 * right:
        if zero == -76:
            return Correct("0.0 itself lands on -76, so black stays black without a rounding error.")
        if zero in (51, 50):
            return "That is where 0.0 would be if the lowest integer were 0. Here it is -127."
        if zero == 76:
            return "The sign: 0.0 lies nearer to -1.0 than to 4.0, so its integer is negative."
        if zero != int(zero):
            return "The scale is right. A zero point is an integer: round it."
        return f"The scale is right. With a zero point of {zero}, -1.0 lands on {round(-1 / right) + int(zero)}."
    if abs(scale - 4 / 127) <= 0.01 * 4 / 127:
        return "That is the symmetric scale: it puts 4.0 at 127, but -1.0 at -32."
    if abs(scale * right - 1) <= 0.01 or abs(scale - 1 / right) <= 0.01 / right:
        return "Upside down: the scale is the size of a step, in units of the values."
    return f"With a step of {scale:.4f}, 254 steps cover {254 * scale:.2f}; they have to cover 5.0."


@cache
def _kl_limit():
    """The input range that KL chooses for 200 training images."""
    from helpers.data import calibration_samples
    from helpers.quantize import calibrate_int8

    target = ARTIFACTS / "nb08" / "exercise_kl.mnn"
    return calibrate_int8(ARTIFACTS / "mnist_cnn.mnn", target, calibration_samples(200)).tensor("input").high


@exercise("08.2", hint="the report's tensor 'input' has .low and .high; black is the smallest pixel value.")
def share_of_the_strokes_that_is_clipped(answer):
    from helpers.data import test_set

    answer = float(answer)
    images, _ = test_set()
    ink = images > images.min()
    clipped = np.abs(images) > _kl_limit()
    right = float(clipped[ink].mean())

    def near(value):
        return abs(answer - value) <= 0.005

    if near(right):
        return Correct(f"{right:.0%} of the ink turns into one and the same grey.")
    if near(float(clipped.mean())):
        return "That is the share of all pixels. Leave the black ones out."
    if near(1 - right):
        return "That is the share that is kept."
    if abs(answer - 100 * right) <= 0.5:
        return "A share from 0 to 1 is asked for, not a percentage."
    if answer > 1:
        return f"A share from 0 to 1 is asked for, not {answer:,.6g}."
    return f"{answer:.3f} is too {'large' if answer > right else 'small'}. Count the values beyond ±{_kl_limit():.2f}."


@dataclass
class _Row:
    name: str
    bytes: int
    accuracy: float


_TABLES = (  # rows, the name of the right one, the hint when another is returned
    ([("big", 800, 0.993), ("small", 100, 0.9905), ("tiny", 60, 0.94)], "small",
     "It does not take the smallest of those that are good enough: big 99.3 %, small 99.05 %, tiny 94 %."),
    ([("exact", 100, 0.990), ("big", 800, 0.995)], "exact",
     "A row with exactly 99.0 % is good enough; it was turned down."),
    ([("first", 100, 0.991), ("second", 100, 0.992)], "second",
     "Two rows of the same size: the more accurate one, not the first."),
    ([("second", 100, 0.992), ("first", 100, 0.991)], "second",
     "Two rows of the same size: the more accurate one, not the last."),
    ([("close", 50, 0.9899), ("fine", 100, 0.991)], "fine",
     "A row with 98.99 % has less than 99.0 %, however small it is."),
    ([("small", 1000, 0.990), ("accurate", 1001, 0.9999)], "small",
     "Size comes first: of two good rows with 1,000 and 1,001 bytes the smaller one."),
    ([("a", 100, 0.95), ("b", 200, 0.98)], None, "No row is good enough: return None then."),
)  # fmt: skip


@exercise("08.3", hint="keep the rows that are good enough, then min() with a key of two parts: (bytes, -accuracy).")
def a_rule_that_chooses(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = choose), found {type(answer).__name__}."
    for rows, expected, hint in _TABLES:
        try:
            found = answer([_Row(*row) for row in rows])
        except (ValueError, IndexError) as error:  # min() of nothing, the first of none
            if expected is not None:
                raise
            return f"{type(error).__name__}: {error}. {hint}"
        if getattr(found, "name", None) != expected:
            return hint
    return Correct("A rule that is code can be run again on the next model, and nobody can bend it.")


@exercise("08.4", hint="KL needs histograms without a spike. What did the sets that worked have in common?")
def samples_with_which_kl_works(answer):
    from helpers.data import test_set
    from helpers.quantize import CalibrationError, calibrate_int8, logits_of
    from helpers.runtime import MnnModule

    samples = np.asarray(answer)
    if samples.ndim != 4:
        return f"An array [N, 1, 28, 28] is expected; found the shape {list(samples.shape)}."
    if len(samples) > 50:
        return f"{len(samples)} samples are too many; at most 50 are allowed. More of the same would not help anyway."
    target = ARTIFACTS / "nb08" / "exercise_int8.mnn"
    try:
        report = calibrate_int8(ARTIFACTS / "mnist_cnn.mnn", target, samples)
    except CalibrationError as error:
        return f"The calibration refuses them: {str(error).splitlines()[0]}"
    images, labels = test_set()
    images, labels = images[:2000], labels[:2000]
    lost = 100 * float(
        (logits_of(MnnModule(ARTIFACTS / "mnist_cnn.mnn", threads=2), images).argmax(1) == labels).mean()
        - (logits_of(MnnModule(target, threads=2), images).argmax(1) == labels).mean()
    )
    limit, largest = report.tensor("input").high, float(images.max())
    if lost < 0.5:
        return Correct(f"The input's range is ±{limit:.2f}, and the integers cost less than half a point.")
    if limit < 0.8 * largest:
        return f"{lost:.1f} points lost: the input is clipped at ±{limit:.2f}, while pixels reach {largest:.2f}."
    if limit > 3 * largest:
        return f"{lost:.1f} points lost: with ±{limit:.0f} a whole digit falls into a few steps. Mind the scale."
    return f"{lost:.1f} points lost. The input's range of ±{limit:.2f} is fine; look at the other tensors' ranges."
