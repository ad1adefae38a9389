"""What may have gone wrong before the network: guesses, each undone on the samples and judged by what it repairs."""

import math

import numpy as np

CHANCE = 0.05
"""How often all guesses together may look like a repair that is none (family-wise error, Bonferroni)."""

IMAGENET = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
"""Mean and standard deviation of the red, green and blue of ImageNet's photographs, in [0, 1]."""


def guesses(x):
    """Yield (box, fault, what was done in words, the samples with that undone) for every guess that changes something.

    x: float array [N, …] with finite values, [N, C, H, W] or [N, H, W, C] for images. box: the box of the decision
    chart that the guess belongs to.
    """
    low, high = x.min(), x.max()
    pixels = (x - low) / (high - low)
    channels = _channel_axis(x)
    per_channel = x.ndim == 4 and x.shape[channels] > 1
    scaled = {
        "standardised to mean 0 and standard deviation 1": _standardised(x),
        "multiplied by 255": x * 255,
        "divided by 255": x / 255,
        "stretched to 0..1": pixels,
        "stretched to 0..255": pixels * 255,
        "stretched to -1..1": pixels * 2 - 1,
    }
    if per_channel:
        others = tuple(axis for axis in range(4) if axis != channels)
        scaled["standardised channel by channel"] = _standardised(x, others)
        if x.shape[channels] == 3:
            shape = [3 if axis == channels else 1 for axis in range(4)]
            mean, std = (values.reshape(shape) for values in IMAGENET)
            scaled["normalised with ImageNet's mean and standard deviation"] = (pixels - mean) / std
    for words, y in scaled.items():
        ratio = float(y.std() / x.std())
        yield "scaling", "pixel range" if not 0.05 < ratio < 20 else "wrong mean/std", words, y
    yield "scaling", "inverted image", "inverting the brightness", low + high - x
    yield "scaling", "inverted image", "inverting the brightness and standardising", _standardised(-x)
    if per_channel:
        yield "channels", "channel order", _reversal(x.shape[channels]), np.flip(x, channels)
        yield "layout", "layout", *_relabelled(x, channels)
    if x.ndim == 4:
        yield "orientation", "transposed input", "swapping height and width", _transposed(x, channels)


def _channel_axis(x):
    """1 for [N, C, H, W], 3 for [N, H, W, C]: the one with 1, 3 or 4 entries, 1 in doubt."""
    return 3 if x.ndim == 4 and x.shape[1] not in (1, 3, 4) and x.shape[3] in (1, 3, 4) else 1


def _standardised(x, axes=None):
    spread = x.std(axis=axes, keepdims=True, dtype=np.float64)
    centred = x - x.mean(axis=axes, keepdims=True, dtype=np.float64)
    return centred / np.where(spread > 0, spread, 1)


def _reversal(count):
    return f"swapping channels 0 and {count - 1}" if count < 4 else f"reversing the {count} channels"


def _relabelled(x, channels):
    """The samples as they would be had their memory been labelled with the other order of axes."""
    if channels == 1:
        n, c, h, w = x.shape
        return "reading the memory as height, width, channels", x.reshape(n, h, w, c).transpose(0, 3, 1, 2)
    n, h, w, c = x.shape
    return "reading the memory as channels, height, width", x.reshape(n, c, h, w).transpose(0, 2, 3, 1)


def _transposed(x, channels):
    """Height and width swapped; where they differ, the memory is read as [W, H] first, so that the shape stays."""
    if channels == 1:
        n, c, h, w = x.shape
        return x.reshape(n, c, w, h).swapaxes(2, 3)
    n, h, w, c = x.shape
    return x.reshape(n, w, h, c).swapaxes(1, 2)


def chance(before, after):
    """How likely it is that a change which does nothing repairs that many answers: one-sided exact McNemar test.

    before, after: bool [N], whether each answer was right. Source: McNemar 1947, Psychometrika 12, 153-157.
    """
    repaired, broken = int((after & ~before).sum()), int((before & ~after).sum())
    changed = repaired + broken
    return sum(math.comb(changed, count) for count in range(repaired, changed + 1)) / 2**changed


def repairs(before, after):
    """Whether a third of the wrong answers or more are gone; before, after: bool [N], whether each answer was right."""
    return bool(after.sum() > before.sum() and 3 * (~after).sum() <= 2 * (~before).sum())


def fewest(tries):
    """How many samples it takes at least for one of `tries` guesses to be a clear repair, were it perfect."""
    return math.ceil(math.log2(tries / CHANCE))


def interval(right, count):
    """Where the true accuracy lies with 95 % confidence, (low, high), when `right` of `count` answers were right.

    Source: Wilson 1927, Journal of the American Statistical Association 22, 209-212.
    """
    z, share = 1.96, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)
