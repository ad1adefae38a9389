"""What every layer hands on, in ONNX Runtime and in MNN, and which tensor of the one is which of the other.

MNN keeps the names of ONNX tensors, but not all of them, and not always what they stand for:

* a ReLU is fused into the operator before it. Of the two tensors, the one after the ReLU is left (Conv → Relu), or both
  names are left and both mean the value after it (Gemm → Relu, where copies and reshapes surround a convolution);
* a tensor that a fusion swallowed has no counterpart: its operator belongs to the layer of the next tensor that has;
* shapes may have more or fewer axes of length 1.

So a *layer* is a tensor known to both, with all ONNX operators that lead to it from other such tensors.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import native
from .convert import op_of, read_mnn
from .native import quietly
from .paths import short
from .runtime import MnnModule, OrtModel, TensorSpec

SAME_VALUES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "ConvertTensor")
"""Operators of ONNX and MNN that hand on the values they get, in the same order."""

RELUS = ("Relu", "Clip", "LeakyRelu", "PRelu")


@dataclass(frozen=True)
class OnnxNode:
    """An operator of the ONNX file that depends on the values of the inputs. Names of tensors, constants left out."""

    type: str
    name: str
    inputs: tuple
    outputs: tuple


@dataclass(frozen=True)
class Layer:
    """A tensor that both engines hold: its name here and there, and the operators that make it.

    inputs: the ONNX tensors it is made from; nodes: the `OnnxNode`s in between, in order; mnn_op: "Convolution+relu".
    """

    tensor: str
    mnn_tensor: str
    inputs: tuple
    nodes: tuple
    mnn_op: str

    @property
    def onnx_op(self):
        """The types of its nodes: "Conv+Relu", or "Div+…+Mul (5)"."""
        types = [node.type for node in self.nodes]
        return "+".join(types) if len(types) < 4 else f"{types[0]}+…+{types[-1]} ({len(types)})"


@dataclass(frozen=True)
class OnnxGraph:
    """The nodes in order, and the names of the inputs and outputs. Left out: what depends on shapes or nothing."""

    nodes: tuple
    inputs: tuple
    outputs: tuple

    @property
    def tensors(self):
        """Names of all that the nodes make."""
        return [name for node in self.nodes for name in node.outputs]


def read_onnx(path):
    """The `OnnxGraph` of a file. Raises ValueError when it is no ONNX file."""
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's DecodeError, whose class differs between its implementations
        raise ValueError(f"{short(path)} is not an ONNX file: {error}") from error
    weights = {tensor.name for tensor in graph.initializer}
    given = tuple(value.name for value in graph.input if value.name not in weights)
    known, nodes = set(given), []
    for node in graph.node:
        inputs = tuple(name for name in node.input if name in known)
        if inputs and node.op_type not in ("Shape", "Size"):
            outputs = tuple(filter(None, node.output))
            nodes.append(OnnxNode(node.op_type, node.name or outputs[0], inputs, outputs))
            known.update(outputs)
    return OnnxGraph(tuple(nodes), given, tuple(value.name for value in graph.output))


def onnx_tensors(path, inputs, wanted, replaced=None, *, timeout=300):
    """{name: array} of the tensors `wanted`, as ONNX Runtime computes them in a child process.

    inputs: {name: array}. replaced: {tensor: array}, which every operator that reads the tensor gets instead
    of what ONNX Runtime computed; the tensor itself is still returned as computed. timeout: seconds. Raises as
    `OrtModel`, and NativeError when ONNX Runtime crashes or takes too long.
    """
    import onnx

    replaced = replaced or {}
    model = onnx.load(path)
    graph = model.graph
    used = {name for node in graph.node for name in node.input if name in replaced}
    for node in graph.node:
        node.input[:] = [_given(name) if name in replaced else name for name in node.input]
    for name in used:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(replaced[name].dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(_given(name), dtype, replaced[name].shape))
    outputs = {value.name for value in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in outputs)
    with tempfile.TemporaryDirectory() as folder:
        exposed = Path(folder, Path(path).name)
        onnx.save(model, exposed)
        feed = inputs | {_given(name): replaced[name] for name in used}
        results = native.call("helpers.intermediates:_run_onnx", exposed, feed, timeout=timeout)[0]
    return {name: results[name] for name in wanted}


def _run_onnx(path, feed):
    """{output: array} of an ONNX file. In a child process only; it needs no onnx, which is slow to import."""
    return OrtModel(path).named(feed)


def _given(name):
    return f"{name} (given)"


class _Exposed(MnnModule):
    """An .mnn file through the Module API, returning other tensors than its outputs.

    Asked for as an output, a tensor keeps its memory and its name. The other way, a session's callbacks, shows memory
    that later operators use again, and shows no operator that only renames (Reshape).
    """

    def __init__(self, path, wanted):
        super().__init__(path)
        self.outputs = {name: TensorSpec(name, None, None) for name in wanted}
        with quietly():
            import MNN.nn

            self._module = MNN.nn.load_module_from_file(
                str(path), list(self.inputs), list(wanted), runtime_manager=self._runtime
            )


def mnn_tensors(path, inputs, graph):
    """(operators, half, arrays) of an .mnn file that was made from the OnnxGraph `graph`. In a child process only.

    inputs: {name: array}. operators: list of convert.Op; half: whether the file stores weights in half precision;
    arrays: {tensor: array} of every tensor that bears a name from the graph, or whose operator does, in MNN's shape.
    Raises ValueError when inputs or outputs have other names than in the graph, and as `MnnModule` does.
    """
    model = MnnModule(path)
    for side, expected, found in (("inputs", graph.inputs, model.inputs), ("outputs", graph.outputs, model.outputs)):
        if set(expected) != set(found):
            raise ValueError(
                f"{short(path)} was not made from this ONNX file: its {side} are {sorted(found)}, the ONNX file's "
                f"{sorted(expected)}. Convert that file (notebook 05) and compare with the result."
            )
    names = set(graph.tensors)
    answers = model.named(inputs)
    net = read_mnn(path)
    details = [entry.get("main") or {} for entry in net["oplists"]]
    half = any(main.get("dataType") == "DT_HALF" or (main.get("quanParameter") or {}).get("type") == 3
               for main in details)  # fmt: skip
    operators = [op_of(entry, net["tensorName"]) for entry in net["oplists"]]
    wanted = dict.fromkeys(
        name for op in operators if op.type not in ("Input", "Const") for name in op.outputs
        if name in names or op.name in names
    )  # fmt: skip
    # The answers are those of a run that nobody looks into: exposing a tensor changes how MNN uses its memory.
    return operators, half, _Exposed(path, wanted).named(inputs) | answers


def match(graph, operators):
    """The layers that an ONNX graph and an .mnn file have in common, in the order of the ONNX graph: list of `Layer`.

    graph: OnnxGraph; operators: as `mnn_tensors` returns them. The counterpart of a tensor bears its name; if there is
    none, it is the result of the MNN operator that bears it; and for a ReLU that MNN does not have, its input: what the
    layers behind it get instead.
    """
    makers = {name: op for op in operators for name in op.outputs}
    named = {op.name: op.outputs[0] for op in operators if op.outputs and op.type not in ("Input", "Const")}
    pairs = {}
    for node in graph.nodes:
        for name in node.outputs:
            if name in makers:
                pairs[name] = name
            elif name in named:
                pairs[name] = named[name]
            elif node.type in RELUS and node.inputs[0] in pairs:
                pairs[name] = pairs[node.inputs[0]]
    sources = {name: node for node in graph.nodes for name in node.outputs}
    mnn_root = {name: _root(pairs[name], makers) for name in pairs}
    # Where MNN has one value for several ONNX tensors that differ, it stands for the last of them.
    last = {mnn_root[name]: name for name in pairs}
    kept = {name for name in pairs
            if name in graph.outputs or _root(name, sources) == _root(last[mnn_root[name]], sources)}  # fmt: skip
    layers = []
    for name in filter(kept.__contains__, pairs):
        path, inputs = _back(name, sources, kept)
        # Of a reshape, MNN's reshape is shown; of all else, what computed the values.
        maker = makers.get(pairs[name] if path[-1].type in SAME_VALUES else mnn_root[name])
        layers.append(Layer(name, pairs[name], inputs, path, str(maker or "")))
    return layers


def _root(name, makers):
    """The tensor whose values this one has: back through operators that change none."""
    while name in makers and makers[name].type in SAME_VALUES:
        name = makers[name].inputs[0]
    return name


def _back(name, sources, kept):
    """(The nodes that lead to a tensor from other kept ones, in the graph's order; the tensors they begin with.)"""
    found, inputs, waiting = set(), {}, [name]
    while waiting:
        node = sources[waiting.pop()]
        found.add(node)
        for source in node.inputs:
            if source in kept or source not in sources:
                inputs[source] = True
            elif sources[source] not in found:
                waiting.append(source)
    return tuple(node for node in dict.fromkeys(sources.values()) if node in found), tuple(inputs)
