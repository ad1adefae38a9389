"""Networks for the tests of faults and layers: small, random, with all that makes matching layers hard."""

import numpy as np
from tiny_onnx import save_onnx


def _weights(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape, scale=0.4).astype(np.float32) for name, shape in shapes.items()}


def branches(path):
    """A residual block (b → c, beside its input a), a ReLU behind the sum, two heads. Nodes are named by their output.

    Input x [batch, 3, 8, 8], outputs logits [batch, 5] and map [batch, 4, 8, 8].
    """
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        ("Conv", ["x", "wa", "ba"], ["a"], pads), ("Relu", ["a"], ["ra"]),
        ("Conv", ["ra", "wb", "bb"], ["b"], pads), ("Relu", ["b"], ["rb"]),
        ("Conv", ["rb", "wc", "bc"], ["c"], pads),
        ("Add", ["ra", "c"], ["sum"]), ("Relu", ["sum"], ["rs"]),
        ("GlobalAveragePool", ["rs"], ["pool"]), ("Flatten", ["pool"], ["flat"]),
        ("Gemm", ["flat", "wl", "bl"], ["logits"]),
        ("Conv", ["rs", "wm", "bm"], ["pre"]), ("Sigmoid", ["pre"], ["map"]),
    ]  # fmt: skip
    return save_onnx(
        path, nodes, {"x": ("float32", ["batch", 3, 8, 8])},
        {"logits": ("float32", ["batch", 5]), "map": ("float32", ["batch", 4, 8, 8])},
        _weights(0, wa=(8, 3, 3, 3), ba=8, wb=(8, 8, 3, 3), bb=8, wc=(8, 8, 3, 3), bc=8, wl=(8, 5), bl=5,
                 wm=(4, 8, 1, 1), bm=4),
    )  # fmt: skip


def sequence(path):
    """1-D convolutions, one in groups, transposes, attention, LayerNormalization, Gelu and a SiLU written out.

    Input x [batch, 3, 20], output y [batch, 10, 8].
    """
    nodes = [
        ("Conv", ["x", "wa", "ba"], ["a"], {"pads": [2, 2], "strides": [2]}), ("Relu", ["a"], ["ra"]),
        ("Conv", ["ra", "wb", "bb"], ["b"], {"pads": [1, 1], "group": 2}), ("Sigmoid", ["b"], ["gate"]),
        ("Mul", ["b", "gate"], ["silu"]),
        ("Transpose", ["silu"], ["t"], {"perm": [0, 2, 1]}),
        ("LayerNormalization", ["t", "scale", "shift"], ["n"]),
        ("MatMul", ["n", "wq"], ["q"]), ("MatMul", ["n", "wk"], ["k"]),
        ("Transpose", ["k"], ["kt"], {"perm": [0, 2, 1]}),
        ("MatMul", ["q", "kt"], ["scores"]), ("Softmax", ["scores"], ["attention"]),
        ("MatMul", ["attention", "n"], ["mixed"]), ("Add", ["mixed", "t"], ["u"]),
        ("MatMul", ["u", "wf"], ["f"]), ("Add", ["f", "bf"], ["fb"]), ("Gelu", ["fb"], ["g"]),
        ("MatMul", ["g", "wo"], ["y"]),
    ]  # fmt: skip
    return save_onnx(
        path, nodes, {"x": ("float32", ["batch", 3, 20])}, {"y": ("float32", ["batch", 10, 8])},
        _weights(1, wa=(8, 3, 5), ba=8, wb=(8, 4, 3), bb=8, scale=8, shift=8, wq=(8, 8), wk=(8, 8), wf=(8, 16), bf=16,
                 wo=(16, 8)),
        opset=20,
    )  # fmt: skip


def chaotic(path, depth=40):
    """`depth` times MatMul and Tanh, with weights so large that every layer multiplies a small difference.

    Input x [batch, 32], output y [batch, 32].
    """
    names = ["x", *(f"t{i}" for i in range(depth - 1)), "y"]
    nodes = [
        node for i in range(depth)
        for node in (("MatMul", [names[i], f"w{i}"], [f"m{i}"]), ("Tanh", [f"m{i}"], [names[i + 1]]))
    ]  # fmt: skip
    side = ("float32", ["batch", 32])
    return save_onnx(path, nodes, {"x": side}, {"y": side}, _weights(2, **{f"w{i}": (32, 32) for i in range(depth)}))
