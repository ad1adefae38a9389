"""Models small enough to know by heart, and the course's own one in a folder of its own."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper


def save_onnx(path, nodes, inputs, outputs, weights=None, opset=18):
    """Write an ONNX file. inputs, outputs: {name: (numpy dtype name, shape)}; weights: {name: array}."""

    def values(tensors):
        return [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in tensors.items()
        ]

    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes],
        "tiny",
        values(inputs),
        values(outputs),
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


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


def convolve(x, w, b):
    """Valid cross-correlation plus bias plus ReLU, by hand: the oracle for `tiny`."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None], 0)


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
