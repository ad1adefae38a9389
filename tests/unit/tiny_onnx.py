"""ONNX files small enough to know by heart, and the oracle for one of them."""

import numpy as np
import onnx
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


def convolve(x, w, b):
    """Valid cross-correlation plus bias plus ReLU, by hand: the oracle for `tiny`."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None], 0)
