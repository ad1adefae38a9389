"""Exercises of notebook 01: counting, the data's constants, the loss, and what the network can't do."""

import math

import numpy as np

from helpers.checks import Correct, exercise
from helpers.data import MEAN, STD, arrays, normalize
from helpers.model import evaluate, load_weights
from helpers.paths import ARTIFACTS


def _near(value, expected, relative=2e-3):
    return abs(value - expected) <= relative * abs(expected)


@exercise("01.1", hint="Count the labels of the test set as section 1 did with others: np.bincount(test_labels).")
def constant_answer(answer):
    counts = np.bincount(arrays(train=False)[1])
    training = np.bincount(arrays(train=True)[1])
    best = counts.max() / counts.sum()
    if _near(answer, best, 1e-6):
        return Correct(f"Always {counts.argmax()}: a score near {best:.0%} needs no look at the image.")
    if _near(answer, counts.max()) or _near(answer, 100 * best):
        return "The right digit, in another unit: a share between 0 and 1 is asked for."
    if _near(answer, training.max() / training.sum(), 1e-3):
        return "That is the share in the training set; the network is tested on the other one."
    if _near(answer, 0.14):
        return "That is true of the first 100 images; take all 10,000."
    if _near(answer, 0.1):
        return "That would be so if all digits were equally frequent. They are not."
    if _near(answer, best, 0.04):
        return "Nearly: give the share itself, count / 10,000, not rounded."
    return f"The best constant answer gets more than a tenth and less than an eighth right, not {answer:.4f}."


@exercise("01.2", hint="Which pixel does normalize() turn into exactly 0? Solve (x / 255 - 0.1307) / 0.3081 = 0 for x.")
def grey_of_the_padding(answer):
    if abs(answer - 255 * MEAN) <= 0.5:  # pixels are whole numbers: 33 will do
        return Correct("Padding with 0 after normalizing surrounds the digit with a dark grey, not with black.")
    if answer == 0:
        return "Black, a pixel of 0, becomes -0.42 when it is normalized; the padding is 0 after normalizing."
    if _near(answer, MEAN):
        return "That is on the scale from 0 to 1. On which scale are the pixels?"
    if _near(answer, -MEAN / STD, 0.02):
        return "That is what a black pixel becomes. The question goes the other way: what becomes 0?"
    return f"A pixel of {answer:.4g} becomes {(answer / 255 - MEAN) / STD:.2f}, not 0."


@exercise("01.3", hint="Which layer's number of inputs depends on height and width? They stay at 14 and 14.")
def without_second_pool(answer):
    convolutions, last = 160 + 32 + 4640 + 64, 1290
    with_pool = convolutions + (32 * 7 * 7 * 128 + 128) + last
    right = convolutions + (32 * 14 * 14 * 128 + 128) + last
    if answer == right:
        return Correct("The pool has no parameters itself, but it keeps the layer behind it four times smaller.")
    if answer == with_pool:
        return "The pool has no parameters, true. But look at what the first linear layer gets as input."
    if answer == convolutions + (32 * 14 * 7 * 128 + 128) + last:
        return "Both height and width stay at 14, not one of them."
    if answer == 4 * with_pool:
        return "Only one layer grows by four: the convolutions and the last layer stay as they are."
    if answer == right - 128:
        return "Almost: the linear layer has biases too, one for each of its 128 outputs."
    return f"{answer:,} does not fit: only the weights of Linear 32·7·7 → 128 change."


@exercise("01.4", hint="The cell after the training computes such a floor. What is the target with 0.1?")
def smallest_loss(answer):
    floor = -(0.91 * math.log(0.91) + 0.09 * math.log(0.01))
    if _near(answer, floor):
        return Correct("Twice the smoothing costs less than twice the floor: compare like with like.")
    if answer == 0:
        return "0 needs all probability on the right digit, but this target wants 0.01 on each of the others."
    if _near(answer, -math.log(0.9)) or _near(answer, -math.log(0.91)):
        return "That is the right digit's part without its weight; the nine others have a probability and a part, too."
    if _near(answer, -(0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 9))):
        return "PyTorch spreads the 0.1 over all ten digits, the right one included: 0.91 and nine times 0.01."
    if _near(answer, -(0.91 * math.log(0.91) + 0.01 * math.log(0.01))):
        return "There are nine wrong digits, not one."
    return f"A network that answers with the target itself has another loss than {answer:.4f}."


@exercise("01.5", hint="Loop over the shifts; for each one evaluate(model, normalize(moved), test_labels[:1000]).")
def smallest_harmful_shift(answer):
    model = load_weights(ARTIFACTS / "mnist_cnn.pt")
    pixels, labels = (part[:1000] for part in arrays(train=False))
    shares = [evaluate(model, normalize(np.roll(pixels, shift, axis=2)), labels) for shift in range(9)]
    right = next(shift for shift, share in enumerate(shares) if share < 0.9)
    if answer == int(answer) >= 0:
        answer = int(answer)
    elif not 0 < answer < 1:
        return f"A shift to the right by whole pixels is asked for, 0 or more, not {answer:g}."
    if answer == right:
        return Correct(f"{shares[right]:.0%} with {right}: it knows centred digits only, so the pad centres yours.")
    if answer == right - 1:
        return f"At {answer} pixels it is still right in {shares[answer]:.0%} of the cases; go one further."
    if answer == next((shift for shift, share in enumerate(shares) if share < 0.5), None):
        return "There it fails more often than not. Fewer than 90 % are reached earlier."
    if 0 < answer < 1:
        return "That is a share of right answers; the shift is asked for, in pixels."
    if answer > right:
        return f"Fewer than 90 % are reached before {answer} pixels."
    return f"At {answer} pixels more than 90 % are still right."
