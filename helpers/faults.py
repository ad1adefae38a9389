"""Faults to plant in an ONNX file on purpose, for whoever wants to see whether they are found.

Every function reads `onnx_path`, changes one layer, writes `out` and returns a `Fault`. `layer` is the name of a node,
or a place (0, 1, …) among those that this fault can be planted in. Raises ValueError where there is no such layer.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .intermediates import RELUS
from .onnx_export import constants_of
from .paths import atomic_write

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
HALF_MAX = 65504
"""The largest half-precision number."""


@dataclass(frozen=True)
class Fault:
    """A planted fault: the file that has it, the name of the node it is in, and what was done, in words."""

    path: Path
    node: str
    what: str

    def __str__(self):
        return f"{self.node}: {self.what}"


def scale_weight(onnx_path, out, layer=0, factor=1.05):
    """All weights of one layer times `factor`."""
    return _change_weight(onnx_path, out, layer, lambda w: w * factor, f"weights times {factor:g}")


def wrong_weights(onnx_path, out, layer=0, seed=0):
    """The weights of one layer in another order: the same values, the wrong places."""
    rng = np.random.default_rng(seed)
    return _change_weight(onnx_path, out, layer, lambda w: rng.permutation(w.ravel()).reshape(w.shape),
                          "weights in another order")  # fmt: skip


def quantize_weight(onnx_path, out, layer=0, bits=8):
    """The weights of one layer rounded to 2**bits - 1 steps from -max |w| to max |w|, one scale for all of them."""

    def rounded(w):
        step = np.abs(w).max() / (2 ** (bits - 1) - 1) or 1.0
        return np.rint(w / step) * step

    return _change_weight(onnx_path, out, layer, rounded, f"weights rounded to {bits} bits")


def overflow_fp16(onnx_path, out, layer=0, largest=1e6):
    """All weights of one layer times the factor that makes the largest of them `largest`.

    FP32 computes with that, and after a ReLU the larger numbers mean much the same; --fp16 ends at 65504.
    """
    if not HALF_MAX < largest < 1e30:
        raise ValueError(f"largest must lie beyond {HALF_MAX} and leave FP32 room to compute; found {largest:g}.")
    return _change_weight(onnx_path, out, layer, lambda w: w * (largest / np.abs(w).max()),
                          f"weights of up to {largest:g}, too large for half precision")  # fmt: skip


def drop_bias(onnx_path, out, layer=0):
    """One Conv or Gemm without its bias."""
    model = _load(onnx_path)
    node = _find(model, layer, [n for n in model.graph.node if n.op_type in WEIGHTED and len(n.input) > 2])
    node.input.pop()
    return _save(model, out, node, "bias dropped")


def remove_relu(onnx_path, out, layer=0):
    """One ReLU (or ReLU6) less: what read its output now reads its input."""
    model = _load(onnx_path)
    node = _find(model, layer, [n for n in model.graph.node if n.op_type in RELUS])
    graph, (before, after) = model.graph, (node.input[0], node.output[0])
    graph.node.remove(node)
    is_output = any(value.name == after for value in graph.output)
    for other in graph.node:
        names = other.output if is_output else other.input
        # An output of the graph keeps its name: then whoever made the ReLU's input makes it.
        renamed = [(after if is_output else before) if name == (before if is_output else after) else name
                   for name in names]  # fmt: skip
        names[:] = renamed
        if is_output:
            other.input[:] = [after if name == before else name for name in other.input]
    return _save(model, out, node, f"{node.op_type} removed")


def change_padding(onnx_path, out, layer=0):
    """One Conv (or pooling) whose zeros all lie at the beginning of each axis: the same shape, shifted content."""
    model = _load(onnx_path)

    def pads(node):
        return next((attribute for attribute in node.attribute if attribute.name == "pads"), None)

    node = _find(model, layer, [n for n in model.graph.node if (found := pads(n)) and any(found.ints)])
    values = list(pads(node).ints)
    begin, end = values[: len(values) // 2], values[len(values) // 2 :]
    pads(node).ints[:] = [a + b for a, b in zip(begin, end, strict=True)] + [0] * len(end)
    return _save(model, out, node, f"padding {values} became {list(pads(node).ints)}")


FAULTS = (scale_weight, wrong_weights, quantize_weight, drop_bias, remove_relu, change_padding)
"""Those that show in an FP32 conversion."""


class Sealed:
    """A fault that somebody else planted: `path` is the file, `is_in(node)` takes a guess, `reveal()` tells."""

    def __init__(self, fault):
        self.path, self._fault = fault.path, fault

    def __repr__(self):
        return f"sealed answer: one fault is in {self.path.name}; .reveal() tells which"

    def is_in(self, node):
        """Whether the fault is in the node of that name."""
        return node == self._fault.node

    def reveal(self):
        """The `Fault`."""
        return self._fault


def mystery(onnx_path, out, seed):
    """Plant one of FAULTS in one layer, both drawn with `seed`, and return the `Sealed` answer."""
    rng = np.random.default_rng(seed)
    fault = FAULTS[rng.integers(len(FAULTS))]
    places = []
    while True:  # how many layers a fault fits is told by the first one that it does not
        try:
            fault(onnx_path, out, len(places))
        except ValueError:
            break
        places.append(len(places))
    if not places:
        raise ValueError(f"{Path(onnx_path).name} has no layer for {fault.__name__}(); try another seed.")
    return Sealed(fault(onnx_path, out, int(rng.choice(places))))


def _load(path):
    import onnx

    model = onnx.load(path)
    for index, node in enumerate(model.graph.node):
        node.name = node.name or node.output[0] or f"{node.op_type}_{index}"
    return model


def _save(model, out, node, what):
    import onnx

    with atomic_write(out) as temporary:
        onnx.save(model, temporary)
    return Fault(Path(out), node.name, what)


def _find(model, layer, candidates):
    names = [node.name for node in candidates]
    if isinstance(layer, str) and layer in names:
        return candidates[names.index(layer)]
    if not isinstance(layer, str) and 0 <= layer < len(names):
        return candidates[layer]
    raise ValueError(f"There is no layer {layer!r} for this fault; it fits {', '.join(names) or 'none'}.")


def _change_weight(onnx_path, out, layer, change, what):
    from onnx import numpy_helper

    model = _load(onnx_path)
    weights = constants_of(model.graph)
    node = _find(model, layer, [n for n in model.graph.node if n.op_type in WEIGHTED and n.input[1] in weights])
    tensor = weights[node.input[1]]
    changed = change(numpy_helper.to_array(tensor)).astype(numpy_helper.to_array(tensor).dtype)
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    return _save(model, out, node, what)
