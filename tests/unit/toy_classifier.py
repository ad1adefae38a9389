"""A classifier of coloured bars, made without training: what it sees differs in colour, direction and place.

Twelve classes: a red, green or blue bar, lying or standing, near the first or the last edge. So swapped channels,
swapped axes and mislabelled memory turn every class into another one or into none.
"""

import numpy as np
from tiny_onnx import save_onnx

from helpers.runtime import OrtModel

SIDE = 12
MEAN, STD = (np.float32(values).reshape(3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


def photographs(count, seed):
    """Pixels float32 [N, 3, 12, 12] in [0, 1] and labels int64 [N]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 12, count)
    pixels = rng.uniform(0.0, 0.45, (count, 3, SIDE, SIDE)).astype(np.float32)
    for image, label in zip(pixels, labels, strict=True):
        colour, standing, last = label % 3, label // 3 % 2, label // 6
        at = rng.integers(1, 4) if not last else rng.integers(SIDE - 4, SIDE - 1)
        start = rng.integers(0, 4)
        bar = image[colour].T if standing else image[colour]
        bar[at, start : start + 8] = rng.uniform(0.7, 1.0)
    pixels.flat[rng.choice(pixels.size, 2, replace=False)] = 0.0, 1.0
    return pixels, labels


def normalised(pixels):
    return ((pixels - MEAN) / STD).astype(np.float32)


def make_toy(path, nodes=None, after=None, extra=None, outputs=None):
    """Write the ONNX file: Conv, Relu, padded MaxPool, Flatten, Gemm, whose weights solve a least-squares problem.

    nodes: what turns "x" into "given" in front of them; after: what reads "features" and "scores" behind them; extra:
    the weights of both.
    """
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(0, 0.4, (24, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(0, 0.5, 24).astype(np.float32),
    }
    body = [
        ("Conv", ["given", "w", "b"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"]),
        ("MaxPool", ["r"], ["p"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Flatten", ["p"], ["features"]),
    ]
    image = {"given": ("float32", ["batch", 3, SIDE, SIDE])}
    start = save_onnx(path.with_name("features.onnx"), body, image, {"features": ("float32", ["batch", 864])}, weights)
    pixels, labels = photographs(3000, 100)
    features = OrtModel(start)(normalised(pixels)).astype(np.float64)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    solution = np.linalg.solve(features.T @ features + 30 * np.eye(865), features.T @ (np.eye(12)[labels] * 4))
    weights |= {"v": np.float32(solution[:-1].T), "d": np.float32(solution[-1])}
    body.append(("Gemm", ["features", "v", "d"], ["scores"], {"transB": 1}))
    nodes = [*(nodes or [("Identity", ["x"], ["given"])]), *body, *(after or [])]
    return save_toy(path, nodes, weights | (extra or {}), outputs)


def save_toy(path, nodes, weights, outputs=None):
    """Write an ONNX file that takes the toy's images; outputs: {name: number of columns}."""
    outputs = {name: ("float32", ["batch", width]) for name, width in (outputs or {"scores": 12}).items()}
    return save_onnx(path, nodes, {"x": ("float32", ["batch", 3, SIDE, SIDE])}, outputs, weights)
