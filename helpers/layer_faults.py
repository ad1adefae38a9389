"""What kind of fault is in a layer: the weights, bias and padding that an ONNX and an .mnn file hold for it.

Nothing is computed with the networks here; the two files are read and laid side by side.
"""

from dataclasses import dataclass

import numpy as np

from . import native
from .convert import read_mnn
from .faults import HALF_MAX, WEIGHTED
from .onnx_export import constants_of

MNN_WEIGHTED = ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DeconvolutionDepthwise", "InnerProduct")
SAME = 0.002
"""Relative difference up to which weights are the same: rounding to half precision makes 0.0005."""


@dataclass(frozen=True)
class Weights:
    """One layer with weights, in both files.

    node: name of the ONNX node. kind: None when both files hold the same, else the fault's short name; words: what was
    found. external: whether the ONNX file keeps these weights in a file of their own. implausible: words when MNN's
    numbers cannot be anybody's weights (all zero, NaN), else "".
    """

    node: str
    kind: str | None
    words: str
    external: bool = False
    implausible: str = ""


def compare_weights(onnx_path, mnn_path, *, timeout=300):
    """A `Weights` for each layer with weights, or a sentence why they cannot be laid side by side.

    A child process reads the .mnn, in at most `timeout` seconds, else NativeError. A BatchNormalization behind a layer
    is multiplied in, since the converter does that too.
    """
    ours = _onnx_layers(onnx_path)
    theirs, _ = native.call("helpers.layer_faults:_mnn_layers", mnn_path, timeout=timeout)
    if len(ours) != len(theirs):
        return f"the ONNX file has {len(ours)} layers with weights, the .mnn {len(theirs)}"
    pairs = []
    for layer in ours:
        # By the name of the tensor, which the converter mostly keeps, else by order, which it mostly keeps too.
        fitting = [other for other in theirs if other["count"] == layer["weight"].size]
        if not fitting:
            return f"no layer of the .mnn has {layer['weight'].size:,} weights as {layer['node']} has"
        twin = next((other for other in fitting if other["name"] in layer["tensors"]), fitting[0])
        theirs.remove(twin)
        pairs.append((layer, twin))
    return [_judge(*pair) for pair in pairs]


def _onnx_layers(path):
    import onnx

    external = {
        tensor.name for tensor in onnx.load(path, load_external_data=False).graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }  # fmt: skip
    graph = onnx.load(path).graph
    constants = constants_of(graph)
    values = {}

    def value(name):
        if name not in values:
            values[name] = onnx.numpy_helper.to_array(constants[name]).astype(np.float64)
        return values[name]

    layers = []
    for node in graph.node:
        if node.op_type not in WEIGHTED or node.input[1] not in constants:
            continue
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        weight = value(node.input[1])
        if node.op_type == "MatMul" or node.op_type == "Gemm" and not attributes.get("transB"):
            weight = np.swapaxes(weight, -1, -2)  # [out, in], as MNN has it
        if node.op_type == "ConvTranspose":
            weight = np.swapaxes(weight, 0, 1)
        bias = value(node.input[2]).ravel() if len(node.input) > 2 and node.input[2] in constants else np.zeros(1)
        tensors = [node.output[0]]
        readers = [other for other in graph.node if node.output[0] in other.input]
        while len(readers) == 1 and readers[0].op_type in ("BatchNormalization", "Add", "Relu", "Clip"):
            other = readers[0]
            if other.op_type == "BatchNormalization":
                epsilon = next((a.f for a in other.attribute if a.name == "epsilon"), 1e-5)
                gain, shift, mean, variance = map(value, other.input[1:5])
                factor = gain / np.sqrt(variance + epsilon)
                weight = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
                bias = (bias - mean) * factor + shift
            if other.op_type == "Add" and len(tensors) == 1:
                bias = bias + next((value(name).ravel() for name in other.input if name in constants), 0)
            tensors.append(other.output[0])
            readers = [reader for reader in graph.node if other.output[0] in reader.input]
        layers.append({"node": node.name or node.output[0], "tensors": tensors, "weight": weight, "bias": bias,
                       "external": node.input[1] in external, "pads": attributes.get("pads")})  # fmt: skip
    return layers


def _mnn_layers(path):
    """What an .mnn file holds for each layer with weights, as a list of dicts. In a child process only."""
    layers = []
    for op in read_mnn(path).get("oplists", []):
        if op["type"] not in MNN_WEIGHTED:
            continue
        main = op["main"]
        quantized = main.get("quanParameter") or {}
        half = quantized.get("type") == 3
        weight = np.array(main.get("weight") or [], np.float64)
        if half:
            weight = np.array(quantized["buffer"], np.int8).view(np.float16).astype(np.float64)
        common = main["common"]
        bits = "" if half or weight.size else str(quantized.get("aMaxOrBits") or 8)
        count = weight.size
        if bits:
            groups = common.get("group") or 1
            inputs = max(1, common["inputCount"] // groups)
            inputs = 1 if "Depthwise" in op["type"] else inputs
            count = common["outputCount"] * inputs * common["kernelX"] * common["kernelY"]
        layers.append({
            "name": op["name"].removesuffix("__matmul_converted"), "weight": weight, "count": count,
            "bias": np.array(main.get("bias") or [0], np.float64),
            "half": half, "bits": bits, "pads": common.get("pads") or [common["padY"], common["padX"]] * 2,
        })  # fmt: skip
    return layers


def _bits(weights):
    """With how many bits, 2 to 8, the weights were rounded to whole multiples of one step; None when they were not."""
    for bits in range(2, 9):
        steps = weights / np.abs(weights).max() * (2 ** (bits - 1) - 1)
        # Chance puts a number that near to an integer once in five times, so sixteen never.
        if weights.size >= 16 and np.abs(steps - np.rint(steps)).max() < 0.1:
            return bits
    return None


def _judge(ours, theirs):
    def verdict(kind, words, implausible=""):
        return Weights(ours["node"], kind, words, ours["external"], implausible)

    if theirs["bits"]:
        return verdict("quantized layer", f"its weights are stored in {theirs['bits']} bits")
    w, m = ours["weight"].ravel(), theirs["weight"]
    largest = float(np.abs(w).max())
    if theirs["half"] and largest > HALF_MAX:
        place = np.abs(w).argmax()
        stored = float(m[place])
        return verdict("fp16 overflow", f"a weight of {w[place]:.6g} is {stored:.6g} in the .mnn, which stores half "
                                        f"precision, and that ends at {HALF_MAX}")  # fmt: skip
    if theirs["half"] and np.abs(m).max() == HALF_MAX:
        words = f"the .mnn holds a weight of {HALF_MAX}, where half precision ends; ONNX has none above {largest:.3g}"
        return verdict("fp16 overflow", words)
    if not np.isfinite(m).all():
        words = f"{(~np.isfinite(m)).sum():,} of its {m.size:,} weights are NaN or infinite in the .mnn"
        return verdict("wrong weights", words, words)
    if not m.any() and w.any():
        return verdict("wrong weights", "all its weights are 0 in the .mnn", "all its weights are 0 in the .mnn")
    product, ww, mm = float(w @ m), float(w @ w), float(m @ m)
    factor, cosine = product / ww if ww else 1.0, product / np.sqrt(ww * mm) if ww and mm else float(ww == mm)
    rest = np.linalg.norm(m - factor * w) / np.linalg.norm(m) if mm else 0.0
    if rest < SAME and abs(factor - 1) > SAME:
        return verdict("scaled weight", f"its weights are {factor:.4g} times those of the ONNX file")
    bits = _bits(m)
    if rest >= SAME and cosine > 0.8 and bits:
        words = f"its weights are rounded to {bits} bits, which takes them {rest:.1%} off those of the ONNX file"
        return verdict("quantized layer", words)
    if rest >= SAME:
        absurd = np.abs(m).max() > 1e6 * largest
        words = f"its weights are others (cosine {cosine:.2f} to those of the ONNX file)"
        return verdict("wrong weights", words, f"weights of up to {np.abs(m).max():.0e}" if absurd else "")
    bias, found = np.broadcast_arrays(ours["bias"], theirs["bias"]) if ours["bias"].size == 1 else (
        ours["bias"], np.resize(theirs["bias"], ours["bias"].size))  # fmt: skip
    negligible = 1e-5 * largest
    if np.abs(bias).max() > negligible and not found.any():
        return verdict("dropped bias", f"its bias (up to {np.abs(bias).max():.3g}) is 0 in the .mnn")
    if not np.allclose(bias, found, rtol=SAME, atol=max(negligible, SAME * np.abs(bias).max())):
        implausible = "" if np.isfinite(found).all() else "its bias is NaN or infinite in the .mnn"
        words = implausible or f"its bias differs by up to {np.abs(bias - found).max():.3g}"
        return verdict("wrong weights", words, implausible)
    if ours["pads"] is not None and list(ours["pads"]) != list(theirs["pads"]):
        return verdict("padding", f"its padding is {list(ours['pads'])} in ONNX, {list(theirs['pads'])} in the .mnn")
    return verdict(None, "")
