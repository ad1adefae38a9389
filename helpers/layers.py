"""Where the time goes: each step of MNN and ONNX Runtime, timed by the engines themselves, and the layers paired."""

import json
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .native import quietly

KINDS = {
    "layer": ("Convolution", "ConvolutionDepthwise", "MatMul", "Conv", "Gemm", "FusedGemm", "FusedMatMul", "FusedConv"),
    "pooling": ("Pooling", "MaxPool", "AveragePool", "GlobalAveragePool"),
    "order": ("Raster", "ConvertTensor", "ReorderInput", "ReorderOutput", "Reshape", "Flatten", "Transpose"),
}
"""Kinds of steps, and what MNN and ONNX Runtime call them; "order" copies data from one memory order to another."""

OTHERS = {"order": "memory order", "other": "other"}


@dataclass(frozen=True)
class Step:
    """One operator as an engine ran it: its type, its name there, the median of its seconds."""

    op: str
    name: str
    seconds: float

    @property
    def kind(self):
        return next((kind for kind, ops in KINDS.items() if self.op in ops), "other")


def mnn_steps(path, array, *, runs=30, hints=()):
    """The steps of an .mnn file with one input, one thread, in the order in which they ran, as a list of `Step`.

    Through runSessionWithCallBackInfo(), which calls back before and after every operator; that itself takes one or two
    µs each time, so give it a batch whose operators take long. hints: (number, value) pairs for setSessionHint().
    """
    with quietly():
        import MNN

        net = MNN.Interpreter(str(path))
        for number, value in hints:
            net.setSessionHint(number, value)
        session = net.createSession({"numThread": 1})
        tensor = net.getSessionInput(session)
        net.resizeTensor(tensor, array.shape)
        net.resizeSession(session)
        host = MNN.Tensor(array.shape, MNN.Halide_Type_Float, array, MNN.Tensor_DimensionType_Caffe)
    begun, samples = [0.0], defaultdict(list)

    def before(_tensors, _op):
        begun[0] = time.perf_counter()
        return True

    def after(_tensors, op):
        seconds = time.perf_counter() - begun[0]
        samples[op.getType(), op.getName()].append(seconds)
        return True

    for _ in range(runs + 1):
        tensor.copyFrom(host)
        net.runSessionWithCallBackInfo(session, before, after)
    # An operator whose work is cut into pieces calls back for each: what counts is the sum of a run.
    return [Step(*key, float(np.median(np.reshape(all_of_it, (runs + 1, -1)).sum(axis=1)[1:])))
            for key, all_of_it in samples.items()]  # fmt: skip


def ort_steps(path, array, *, runs=30):
    """The steps of an ONNX file with one input on ONNX Runtime, one thread, as a list of `Step`: its own profiler's."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: array}
        for _ in range(runs + 1):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    samples = defaultdict(list)
    for event in events:
        if event["name"].endswith("_kernel_time"):
            samples[event["args"]["op_name"], event["name"].removesuffix("_kernel_time")].append(1e-6 * event["dur"])
    return [Step(*key, float(np.median(each[1:]))) for key, each in samples.items()]


def layer_names(summary):
    """Short names for a graph's nodes, {node's name: "Conv 1"}: its operator and a running number."""
    counts, names = Counter(), {}
    for node in summary.nodes:
        counts[node.op] += 1
        names[node.name] = f"{node.op} {counts[node.op]}"
    return names


def side_by_side(summary, engines):
    """{layer: {engine: seconds}}: the graph's layers in order, by their short names, then the rest, summed by kind.

    summary: OnnxSummary of the graph; its nodes with weights, and its poolings, are the layers. engines: {name: list of
    Step}. Layers are paired by their position among the steps of their kind. Raises ValueError when an engine has
    another number of them than the graph: then they cannot be paired.
    """
    rows, names = {}, layer_names(summary)
    for kind, wanted in (("layer", lambda node: node.macs), ("pooling", lambda node: "Pool" in node.op)):
        for place, node in enumerate([node for node in summary.nodes if wanted(node)]):
            rows[node.name] = {}
            for engine, steps in engines.items():
                of_kind = [step for step in steps if step.kind == kind]
                count = sum(bool(wanted(node)) for node in summary.nodes)
                if len(of_kind) != count:
                    raise ValueError(
                        f"{engine} ran {len(of_kind)} steps of the kind {kind!r}, the graph has {count}: "
                        f"{', '.join(f'{step.op} {step.name}' for step in of_kind)}."
                    )
                rows[node.name][engine] = of_kind[place].seconds
    rows = {names[node.name]: rows[node.name] for node in summary.nodes if node.name in rows}
    for kind, title in OTHERS.items():
        sums = {engine: sum(step.seconds for step in steps if step.kind == kind) for engine, steps in engines.items()}
        if any(sums.values()):
            rows[title] = sums
    return rows
