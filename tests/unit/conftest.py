"""A model small enough to know by heart, and the course's own one in a folder of its own."""

import numpy as np
import pytest
from tiny_onnx import save_onnx


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A convolution 2→5 channels, 3×3, with bias and ReLU, dynamic batch: ONNX path, weights, bias."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(5, 2, 3, 3)).astype(np.float32)
    b = rng.normal(size=5).astype(np.float32)
    path = save_onnx(
        tmp_path_factory.mktemp("tiny") / "tiny.onnx",
        [("Conv", ["x", "w", "b"], ["c"]), ("Relu", ["c"], ["y"])],
        {"x": ("float32", ["batch", 2, 8, 8])},
        {"y": ("float32", ["batch", 5, 6, 6])},
        {"w": w, "b": b},
    )
    return path, w, b


@pytest.fixture(scope="session")
def tiny_mnn(tiny):
    from helpers.convert import convert_onnx

    return convert_onnx(tiny[0], tiny[0].with_suffix(".mnn")).path


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """Folder with the course's own mnist_cnn.pt, .onnx and .mnn, made from the shipped weights."""
    from helpers.artifacts import require

    folder = tmp_path_factory.mktemp("course")
    require("mnist_cnn.mnn", folder)
    return folder
