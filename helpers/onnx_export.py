"""From a PyTorch module to a checked ONNX file, and what that file contains."""

import contextlib
import io
import logging
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .paths import atomic_write, short


@dataclass(frozen=True)
class Node:
    """One operator of a graph. Shapes are tuples of int and str (a symbol such as 'batch'); None where unknown.

    parameters: elements of the constant floating-point tensors it reads. macs: multiply-accumulates for a batch of 1.
    """

    op: str
    name: str
    inputs: tuple
    output: str
    input_shape: tuple | None
    output_shape: tuple | None
    parameters: int
    macs: int


@dataclass(frozen=True)
class OnnxSummary:
    """What is in an ONNX file; prints itself as a table."""

    path: Path
    opset: int
    producer: str
    bytes: int
    inputs: dict
    outputs: dict
    nodes: tuple

    @property
    def ops(self):
        """Counter of operator types."""
        return Counter(node.op for node in self.nodes)

    @property
    def parameters(self):
        """Elements of all constant floating-point tensors the operators read (a shared one counts for each reader)."""
        return sum(node.parameters for node in self.nodes)

    @property
    def macs(self):
        """Multiply-accumulates of one forward pass with a batch of 1."""
        return sum(node.macs for node in self.nodes)

    def __str__(self):
        rows = [("op", "name", "input", "output", "parameters", "MACs")]
        for node in self.nodes:
            shapes = _text(node.input_shape), _text(node.output_shape)
            rows.append((node.op, node.name, *shapes, f"{node.parameters:,}", f"{node.macs:,}"))
        rows.append(("total", "", "", "", f"{self.parameters:,}", f"{self.macs:,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        head = f"{short(self.path)}: opset {self.opset}, {self.bytes:,} bytes, made by {self.producer}"
        lines = [
            "  ".join(cell.rjust(width) if column > 3 else cell.ljust(width)
                      for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows
        ]  # fmt: skip
        return "\n".join([head, *lines])


def _text(shape):
    return "?" if shape is None else "×".join(str(side) for side in shape) or "scalar"


def export_onnx(
    module, path, *, example=None, input_names=("input",), output_names=("logits",), dynamic_batch=True, opset=None,
    dynamo=True, external_data=False,
):  # fmt: skip
    """Export `module` in evaluation mode to `path`, check the file, and return its `OnnxSummary`.

    example: tensor or tuple of tensors the module is traced with; default zeros [2, 1, 28, 28], or [1, 1, 28, 28] for a
    fixed batch. dynamic_batch: axis 0 of every input becomes the symbol `batch`; otherwise the batch is the example's.
    opset: None is the exporter's default. dynamo: the torch.export-based exporter, or (False) the older TorchScript
    one. external_data: weights in
    `<path>.data` beside the file. The module's training flag is put back. Whatever the exporter raises passes
    through, and an older file at `path` is then untouched.
    """
    import onnx
    import torch

    path = Path(path)
    if example is None:
        example = torch.zeros(2 if dynamic_batch else 1, 1, 28, 28)
    example = example if isinstance(example, tuple) else (example,)
    options = {"input_names": list(input_names), "output_names": list(output_names), "opset_version": opset}
    if dynamo:
        options["external_data"] = external_data
        if dynamic_batch:
            options["dynamic_shapes"] = tuple({0: torch.export.Dim("batch")} for _ in example)
    elif dynamic_batch:
        options["dynamic_axes"] = {name: {0: "batch"} for name in (*input_names, *output_names)}
    training = module.training
    module.eval()
    try:
        with atomic_write(path) as temporary, _hushed():
            torch.onnx.export(module, example, str(temporary), dynamo=dynamo, verbose=False, **options)
            onnx.checker.check_model(str(temporary), full_check=True)
            weights = temporary.with_name(temporary.name + ".data")
            if weights.exists():
                weights.replace(path.with_name(weights.name))
    finally:
        module.train(training)
    return summary(path)


@contextlib.contextmanager
def _hushed():
    """The exporters talk on three channels (warnings, logging, print); what they raise still passes."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def constants_of(graph):
    """{name: onnx.TensorProto} of all that an ONNX graph stores: its initializers and its Constant nodes."""
    return {tensor.name: tensor for tensor in graph.initializer} | {
        node.output[0]: attribute.t
        for node in graph.node if node.op_type == "Constant"
        for attribute in node.attribute if attribute.name == "value"
    }  # fmt: skip


def summary(path):
    """Read an ONNX file, infer its shapes, return its `OnnxSummary`. Raises FileNotFoundError or onnx's own errors."""
    import onnx

    path = Path(path)
    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    graph = model.graph
    constants = constants_of(graph)
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    return OnnxSummary(
        path=path,
        opset=next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        bytes=sum(file.stat().st_size for file in files(path)),
        inputs={value.name: _shape(value) for value in graph.input if value.name not in constants},
        outputs={value.name: _shape(value) for value in graph.output},
        nodes=tuple(_node(node, shapes, constants) for node in graph.node if node.op_type != "Constant"),
    )


def files(path):
    """The files that make up an ONNX model: itself and, in the same folder, those that hold its external weights."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    path = Path(path)
    graph = onnx.load(path, load_external_data=False).graph
    names = {ExternalDataInfo(tensor).location for tensor in graph.initializer if uses_external_data(tensor)}
    return [path, *(path.parent / name for name in sorted(names))]


def _shape(value):
    """Shape of an onnx.ValueInfoProto as a tuple of int and str, None when it has none."""
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(side.dim_value if side.HasField("dim_value") else side.dim_param or "?"
                 for side in value.type.tensor_type.shape.dim)  # fmt: skip


def _node(node, shapes, constants):
    tensors = [constants[name] for name in node.input if name in constants]
    weights = [tuple(tensor.dims) for tensor in tensors if tensor.data_type not in _INTEGERS]
    output = shapes.get(node.output[0])
    return Node(
        op=node.op_type,
        name=node.name or node.output[0],
        inputs=tuple(name for name in node.input if name and name not in constants),
        output=node.output[0],
        input_shape=shapes.get(node.input[0]) if node.input else None,
        output_shape=output,
        parameters=sum(math.prod(shape) for shape in weights),
        macs=_macs(node.op_type, weights, output),
    )


_INTEGERS = (2, 3, 4, 5, 6, 7, 9, 12, 13)
"""Codes of onnx.TensorProto's integer and boolean types: such constants are shapes and axes, not parameters."""


def _macs(op, weights, output):
    """Multiply-accumulates with a batch of 1: each output element of Conv, Gemm or MatMul is one dot product."""
    if op not in ("Conv", "Gemm", "MatMul") or not weights or output is None:
        return 0
    elements = math.prod(side for side in output[1:] if isinstance(side, int))
    if op == "Conv":  # weights [out channels, in channels / groups, kernel height, kernel width]
        return elements * math.prod(weights[0][1:])
    features = math.prod(weights[0]) // output[-1]
    return elements * features
