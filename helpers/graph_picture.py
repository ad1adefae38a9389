"""A drawing of a model's graph, for whoever has no server to show it: made from the .onnx or .mnn file itself.

    graph = read_graph("mnist_cnn.onnx")
    plots.show(draw(graph), alt=describe(graph))

The layout is the classical one for directed graphs (Sugiyama, Tagawa, Toda 1981), in its simplest form: every box
one row below the lowest of those it reads from; the boxes of a row ordered by the mean place of their neighbours; lines
that skip rows kept clear of the boxes by invisible stand-ins.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from . import native, plots
from .convert import graph_ops
from .paths import short

KINDS = {
    "weights": (
        plots.SKY,
        "Conv ConvTranspose Gemm MatMul Convolution ConvolutionDepthwise Deconvolution InnerProduct",
    ),
    "normalization": (
        plots.PURPLE,
        "BatchNormalization InstanceNormalization GroupNormalization LayerNormalization LayerNorm BatchNorm Scale",
    ),
    "activation": (
        plots.ORANGE,
        "Relu LeakyRelu PRelu Elu Gelu Sigmoid HardSigmoid HardSwish Tanh Softmax LogSoftmax Clip Erf "
        "ReLU ReLU6 PReLU ELU TanH",
    ),
    "pooling": ("#5CC9A7", "MaxPool AveragePool GlobalMaxPool GlobalAveragePool Pooling"),
    "change of type": ("#F28C52", "Cast CastLike QuantizeLinear DequantizeLinear"),
    "shape and order": (
        "#D9D9D9",
        "Reshape Flatten Transpose Squeeze Unsqueeze Concat Slice Split Gather Expand Shape Tile Identity Dropout Pad "
        "ConvertTensor Permute Rank SliceTf StridedSlice GatherV2 Range Size",
    ),
    "other": (plots.YELLOW, ""),
}
"""kind: (colour of its boxes, with black text; the operators of ONNX and of MNN that belong to it)."""

ROW, BOX, GAP = 0.72, 0.36, 0.3
"""Inches: from row to row, height of a box, least distance between neighbours in a row."""


@dataclass(frozen=True)
class Box:
    """An operator, or (op "input", "output") a door of the graph. inputs and outputs are names of tensors."""

    op: str
    name: str
    inputs: tuple
    outputs: tuple
    detail: str = ""

    @property
    def kind(self):
        """A key of KINDS, "input" or "output"."""
        if self.op in ("input", "output"):
            return self.op
        op = self.op.partition("+")[0]  # of "Convolution+relu"
        return next((kind for kind, (_, ops) in KINDS.items() if op in ops.split()), "other")


@dataclass(frozen=True)
class Graph:
    """The boxes of a model in the order of the file, and {tensor name: text of its shape} where known."""

    path: Path
    boxes: tuple
    shapes: dict

    @property
    def operators(self):
        """The boxes without inputs and outputs."""
        return [box for box in self.boxes if box.kind not in ("input", "output")]


def read_graph(path):
    """The `Graph` of an .onnx or .mnn file, constants left out.

    The shapes of a .mnn are measured: an .mnn file stores none, so the engine runs once, with a batch of 1, in a child
    process; they stay unknown when it cannot. Raises FileNotFoundError, ValueError for another kind of file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{short(path)} does not exist. Make it first, or check the path.")
    readers = {".onnx": _read_onnx, ".mnn": _read_mnn}
    if path.suffix not in readers:
        raise ValueError(f"Only .onnx and .mnn files can be drawn; found {short(path)}.")
    return readers[path.suffix](path)


def _read_onnx(path):
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), data_prop=True).graph
    except Exception as error:  # protobuf's DecodeError, whose class differs between its implementations
        raise ValueError(f"{short(path)} is not an ONNX file: {error}") from error
    constants = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    inputs = [value.name for value in graph.input if value.name not in constants]
    shapes = {
        value.name: _text(side.dim_value if side.HasField("dim_value") else side.dim_param or "?"
                          for side in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }  # fmt: skip
    boxes = [
        *(Box("input", name, (), (name,)) for name in inputs),
        *(Box(node.op_type, node.name, tuple(filter(None, node.input)), tuple(filter(None, node.output)),
              next((_text(constants[name]) for name in node.input if len(constants.get(name, ())) > 1), ""))
          for node in nodes),
        *(Box("output", value.name, (value.name,), ()) for value in graph.output),
    ]  # fmt: skip
    return Graph(path, tuple(boxes), shapes)


def _read_mnn(path):
    try:
        ops = graph_ops(path)
    except native.NativeError as error:
        raise ValueError(f"{short(path)} is not an MNN model that the converter can list: {error}") from error
    try:
        shapes, outputs = native.call("helpers.graph_picture:_mnn_shapes", path, ops)[0]
    except native.NativeError:
        shapes, outputs = {}, sorted({name for op in ops for name in op.outputs} - {n for op in ops for n in op.inputs})
    boxes = [
        *(Box("input", op.name, (), op.outputs, op.layout) for op in ops if op.type == "Input"),
        *(Box(str(op), op.name, op.inputs, op.outputs, op.layout) for op in ops if op.type not in ("Input", "Const")),
        *(Box("output", name, (name,), ()) for name in outputs),
    ]  # fmt: skip
    return Graph(path, tuple(boxes), shapes)


def _mnn_shapes(path, ops):
    """{tensor: text of its shape} with all dynamic axes 1, and the names of the outputs. In a child process only."""
    import MNN.expr as expr
    import MNN.nn
    import numpy as np

    from .runtime import mnn_type, read_signature, runtime_manager

    inputs, outputs = read_signature(path)
    names = [name for op in ops if op.type not in ("Input", "Const") for name in op.outputs]
    net = MNN.nn.load_module_from_file(
        str(path), [spec.name for spec in inputs], names, runtime_manager=runtime_manager(1)
    )
    variables = []
    for spec in inputs:
        shape = [side if isinstance(side, int) else 1 for side in spec.shape]
        variable = expr.placeholder(shape, expr.NCHW, getattr(expr, mnn_type(spec.dtype)))
        variable.write(np.zeros(shape, {"float": np.float32}.get(mnn_type(spec.dtype), np.int32)))
        variables.append(variable)
    results = dict(zip(names, net.onForward(variables), strict=False))
    shapes = {name: _text(result.shape) for name, result in results.items()}
    shapes |= {spec.name: _text(1 if not isinstance(side, int) else side for side in spec.shape) for spec in inputs}
    return shapes, [spec.name for spec in outputs]


def _text(shape):
    sides = [str(side) for side in shape]
    return "×".join(sides) if len(sides) > 1 else f"[{sides[0]}]" if sides else "scalar"


def describe(graph):
    """One sentence for readers who do not see the drawing: how many operators, which, and where it begins and ends."""
    names = {op: [box.name for box in graph.boxes if box.op == op] for op in ("input", "output")}
    counts = Counter(box.op for box in graph.operators)
    listing = ", ".join(f"{count} {op}" for op, count in counts.items())
    return (
        f"Graph of {graph.path.name}: {counts.total()} operators from {', '.join(names['input'])} "
        f"to {', '.join(names['output'])}: {listing}."
    )


def draw(graph, title=None):
    """A Figure of the graph: a box for each operator, coloured by kind; below it the shape of what it hands on."""
    widths = [max(0.9, 0.078 * max(map(len, _lines(box))) + 0.2) for box in graph.boxes]
    places, routes = layout(widths, edges_between(graph.boxes))
    left = min(x - width / 2 for (x, _), width in zip(places, widths, strict=True))
    right = max(x + width / 2 for (x, _), width in zip(places, widths, strict=True)) + 0.4  # for a shape's text
    margin = max(0.1, (4.2 - (right - left)) / 2)  # the legend needs 4.2 inches
    height = (max(row for _, row in places) + 1) * ROW
    kinds = [kind for kind in KINDS if any(box.kind == kind for box in graph.boxes)]
    fig = Figure(figsize=(right - left + 2 * margin, height + 0.35 + 0.2 * -(-len(kinds) // 3)))
    axes = fig.add_subplot()
    axes.set_title(title or f"Graph of {graph.path.name}")
    for route in routes:
        way = [(x, row * ROW) for x, row in route]
        way[0], way[-1] = (way[0][0], way[0][1] + BOX / 2), (way[-1][0], way[-1][1] - BOX / 2)
        axes.plot(*zip(*way[:-1], strict=True), color=plots.GREY, linewidth=1, zorder=1)
        arrow = {"arrowstyle": "-|>", "color": plots.GREY, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", way[-1], way[-2], arrowprops=arrow, zorder=1)
    for box, (x, row), width in zip(graph.boxes, places, widths, strict=True):
        _draw_box(axes, box, x, row * ROW, width)
        shapes = dict.fromkeys(graph.shapes[name] for name in box.outputs if name in graph.shapes)
        below = {"xy": (x, row * ROW + BOX / 2), "xytext": (3, -2), "textcoords": "offset points"}
        axes.annotate(" | ".join(shapes), **below, ha="left", va="top", fontsize=7,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip
    axes.set(xlim=(left - margin, right + margin), ylim=(height - ROW + 0.3, -0.3), aspect="equal")
    axes.set_axis_off()
    handles = [Patch(facecolor=KINDS[kind][0], edgecolor=plots.BLACK, label=kind) for kind in kinds]
    fig.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
    return fig


def _lines(box):
    """What is written into a box: an input's or output's name, or the operator; below it the detail, if any."""
    return [text for text in (box.name if box.kind in ("input", "output") else box.op, box.detail) if text]


def _draw_box(axes, box, x, y, width):
    door = box.kind in ("input", "output")
    shape = FancyBboxPatch(
        (x - width / 2, y - BOX / 2), width, BOX, boxstyle=f"round,pad=0,rounding_size={0.16 if door else 0.04}",
        facecolor="white" if door else KINDS[box.kind][0], edgecolor=plots.BLACK, linewidth=0.8, zorder=2,
    )  # fmt: skip
    axes.add_patch(shape)
    axes.text(x, y, "\n".join(_lines(box)), ha="center", va="center", fontsize=8, linespacing=1.05, zorder=3)


def edges_between(boxes):
    """[(index of the box that makes a tensor, index of the box that reads it)], each pair once."""
    maker = {name: index for index, box in enumerate(boxes) for name in box.outputs}
    pairs = ((maker[name], index) for index, box in enumerate(boxes) for name in box.inputs if name in maker)
    return list(dict.fromkeys(pairs))


def layout(widths, edges):
    """Where the boxes go: ([(x, row)] for each box, [[(x, row), …]] the way of each edge from box to box).

    widths: of the boxes, in the unit of x. edges: pairs of indices without a cycle (ValueError), as `edges_between`
    returns them. Every edge leads downwards; boxes of one row are at least GAP apart.
    """
    rows = _rows(len(widths), edges)
    widths, rows, chains = list(widths), list(rows), []
    for source, target in edges:  # an edge over several rows becomes a chain of short ones, through stand-ins
        stand_ins = range(len(rows), len(rows) + rows[target] - rows[source] - 1)
        rows += range(rows[source] + 1, rows[target])
        widths += [0.0] * len(stand_ins)
        chains.append([source, *stand_ins, target])
    links = [link for chain in chains for link in zip(chain, chain[1:], strict=False)]
    above, below = ([[] for _ in rows] for _ in range(2))
    for upper, lower in links:
        below[upper].append(lower)
        above[lower].append(upper)
    order = [[index for index, at in enumerate(rows) if at == row] for row in range(max(rows) + 1)]
    x = [0.0] * len(rows)
    for members in order:
        _spread(members, {index: place for place, index in enumerate(members)}, widths, x)
    for sweep in range(40):
        downwards = sweep % 2 == 0
        for members in order if downwards else reversed(order):
            wish = {}
            for index in members:
                # The last sweeps look both ways, which straightens the lines.
                near = above[index] + below[index] if sweep > 7 else (above if downwards else below)[index]
                wish[index] = sum(x[other] for other in near) / len(near) if near else x[index]
            if sweep < 8:
                members.sort(key=wish.get)
            _spread(members, wish, widths, x)
    return list(zip(x, rows, strict=True))[: len(rows) - sum(len(chain) - 2 for chain in chains)], [
        [(x[index], rows[index]) for index in chain] for chain in chains
    ]


def _rows(count, edges):
    """The row of each box: one below the lowest that it reads from; a box that reads nothing, just above its reader."""
    sources, readers = ([[] for _ in range(count)] for _ in range(2))
    for source, reader in edges:
        sources[reader].append(source)
        readers[source].append(reader)
    rows, waiting = {}, list(range(count))
    while waiting:
        ready = [index for index in waiting if all(source in rows for source in sources[index])]
        if not ready:
            raise ValueError("This is no graph of a model: its boxes read from each other in a circle.")
        for index in ready:
            rows[index] = 1 + max((rows[source] for source in sources[index]), default=-1)
        waiting = [index for index in waiting if index not in rows]
    for index in range(count):
        if not sources[index] and readers[index]:
            rows[index] = min(rows[reader] for reader in readers[index]) - 1
    return [rows[index] for index in range(count)]


def _spread(members, wish, widths, x):
    """Give the boxes of a row, from left to right, x as near to `wish` as the distances between them allow."""
    apart = [(widths[a] + widths[b]) / 2 + GAP for a, b in zip(members, members[1:], strict=False)]
    from_left, from_right = ([wish[index] for index in members] for _ in range(2))
    for i, distance in enumerate(apart):
        from_left[i + 1] = max(from_left[i + 1], from_left[i] + distance)
    for i, distance in reversed(list(enumerate(apart))):
        from_right[i] = min(from_right[i], from_right[i + 1] - distance)
    for index, low, high in zip(members, from_left, from_right, strict=True):
        x[index] = (low + high) / 2
