"""Does an .mnn file compute what its ONNX file does? `verify` asks the whole, `layer_parity` every layer.

How far two arrays are apart is the matter of `helpers.distance`; its `compare` and `snr` can be imported from here too.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import intermediates, native
from .distance import Parity, compare, snr
from .paths import short
from .runtime import MnnModule, OrtModel

__all__ = ["LayerParity", "LayerReport", "Parity", "Verdict", "compare", "layer_parity", "snr", "verify"]


@dataclass(frozen=True)
class Verdict:
    """Outcome of `verify`: {output name: Parity or a sentence saying why there is none}, and a reason when not ok."""

    outputs: dict
    reason: str = ""

    @property
    def ok(self):
        """True when every output agrees and nothing else is wrong."""
        return not self.reason and bool(self.outputs) and all(getattr(p, "ok", False) for p in self.outputs.values())

    def __str__(self):
        lines = [f"  {name}: {parity}" for name, parity in self.outputs.items()]
        return "\n".join(["verified" if self.ok else f"NOT VERIFIED {self.reason}".rstrip(), *lines])


def verify(onnx_path, mnn_path, inputs=None, *, atol=1e-4, rtol=1e-3, timeout=300):
    """Run an ONNX file on ONNX Runtime and an .mnn file on MNN, each in a child process, and compare every output.

    inputs: an array or {name: array}; without them, seeded normal noise (0 and 1 for integers) with the batch sizes 1
    and, where the batch is dynamic, 3. Either way a second set of inputs is run as well: a pair of models whose
    outputs never react to their inputs computed nothing, and agreement between them proves nothing (a classifier that
    returns the class alone may answer all noise alike: pass inputs with different answers).

    Returns a `Verdict`; a crash, an error or a time-out in a child is a verdict that is not ok, with its reason.
    Raises FileNotFoundError when a file is missing, ValueError when inputs cannot be made up (a dynamic axis other
    than the batch: pass inputs).
    """
    for path in (onnx_path, mnn_path):
        if not Path(path).is_file():
            raise FileNotFoundError(f"verify() needs {path}, which does not exist.")
    results = []
    feeds = inputs
    for engine, path in (("ONNX Runtime", onnx_path), ("MNN", mnn_path)):
        try:
            # ONNX Runtime goes first and makes up the inputs, MNN then gets the same.
            (feeds, answers), _ = native.call("helpers.parity:_answers", engine, Path(path), feeds, timeout=timeout)
        except _NeedsInputs as error:
            raise ValueError(str(error)) from None
        except Exception as error:
            return Verdict({}, f"({engine}): {error}")
        results.append(answers)
    reference, candidate = results
    if set(reference[0]) != set(candidate[0]):
        return Verdict({}, f"(outputs): {sorted(reference[0])} in ONNX, {sorted(candidate[0])} in MNN")
    outputs = {name: _compare_all([r[name] for r in reference], [c[name] for c in candidate], atol, rtol)
               for name in reference[0]}  # fmt: skip
    deaf = [name for name in outputs if _never_reacts([c[name] for c in candidate])]
    if len(deaf) == len(outputs):
        return Verdict(outputs, f"(computed nothing): {', '.join(deaf)} stays the same for different inputs")
    return Verdict(outputs)


class _NeedsInputs(ValueError):
    """Raised in the child: there is no telling which inputs the model takes."""


def _answers(engine, path, feeds):
    """Run one engine on a list of {name: array}; make the list first where it is not one. In a child process only."""
    model = OrtModel(path) if engine == "ONNX Runtime" else MnnModule(path)
    if not isinstance(feeds, list):
        feeds = _made_up(model) if feeds is None else _with_second(model, feeds)
    return feeds, [model.named(feed) for feed in feeds]


def _made_up(model):
    """Two feeds with a batch of 1 and, where axis 0 of every input is dynamic, one with a batch of 3."""
    rng = np.random.default_rng(0)
    dynamic = all(spec.shape and not isinstance(spec.shape[0], int) for spec in model.inputs.values())

    def feed(batch):
        arrays = {}
        for spec in model.inputs.values():
            shape = [batch if axis == 0 and not isinstance(side, int) else side for axis, side in enumerate(spec.shape)]
            if not all(isinstance(side, int) for side in shape):
                raise _NeedsInputs(
                    f"verify() cannot make up an input for {spec}: pass inputs={{{spec.name!r}: array}}."
                )
            noise = rng.normal(size=shape) if spec.dtype.kind == "f" else rng.integers(0, 2, size=shape)
            arrays[spec.name] = np.asarray(noise).astype(spec.dtype)
        return arrays

    return [feed(batch) for batch in ((1, 1, 3) if dynamic else (1, 1))]


def _with_second(model, inputs):
    """The inputs given, and the same reversed along the last axis, floats as 1 - x."""
    given = inputs if isinstance(inputs, dict) else {next(iter(model.inputs)): inputs}
    other = {}
    for name, array in given.items():
        array = np.asarray(array)
        turned = array[..., ::-1] if array.ndim else array
        other[name] = -turned + 1 if array.dtype.kind == "f" else turned
    return [given, other]


def _compare_all(reference, candidate, atol, rtol):
    """The Parity of all runs of one output together, or a sentence."""
    for r, c in zip(reference, candidate, strict=True):
        if r.shape != c.shape:
            return f"shape {list(r.shape)} in ONNX, {list(c.shape)} in MNN"
        if r.dtype != c.dtype:
            return f"dtype {r.dtype} in ONNX, {c.dtype} in MNN"
        if c.size == 0:
            return "empty: nothing was computed"
        if c.dtype.kind == "f" and np.isnan(c).all():
            return "NaN everywhere: nothing was computed"
    parts = [compare(r, c, atol=atol, rtol=rtol) for r, c in zip(reference, candidate, strict=True)]
    return min(parts, key=lambda part: (part.ok, -part.max_abs))


def _never_reacts(answers):
    first, second = answers[:2]
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


EXACT, COARSE = 90.0, 60.0
"""Decibels that a layer must reach: FP32 arithmetic gives 100 and more, weights in half precision and MNN's approximate
Gelu 65 to 80, weights in 8 bits 35 to 60, weights that are 5 % off 26."""

ROUNDING = 1e-6
"""Differences below this share of the largest number that a layer got are rounding, whatever came out: a mean of
numbers between -3 and 3 that ends near zero consists of it."""


@dataclass(frozen=True)
class LayerParity:
    """One layer in both engines.

    name: of its first ONNX node; nodes: of all; onnx_op, mnn_op: types, "Conv+Relu" and "Convolution+relu"; tensor,
    shape: what it hands on, in ONNX. max_abs, cosine, snr_db compare what the engines computed from the model's inputs:
    all that went wrong up to here. own_snr_db is about this layer alone: ONNX Runtime computes it again from what MNN
    itself handed to it. ok: own_snr_db is at least limit_db, or what differs is rounding. note: why the tensors cannot
    be compared, else "".
    """

    name: str
    nodes: tuple
    onnx_op: str
    mnn_op: str
    tensor: str
    shape: tuple
    max_abs: float
    cosine: float
    snr_db: float
    own_snr_db: float
    limit_db: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class LayerReport:
    """The layers in the order of the ONNX graph; prints itself as a table. unmatched: names of ONNX nodes in none."""

    layers: tuple
    unmatched: tuple = ()

    @property
    def ok(self):
        """True when every layer computes in MNN what it computes in ONNX Runtime."""
        return all(layer.ok for layer in self.layers)

    @property
    def wrong(self):
        """The layers that do not."""
        return tuple(layer for layer in self.layers if not layer.ok)

    @property
    def first(self):
        """The first of them, None when there is none."""
        return next(iter(self.wrong), None)

    def __str__(self):
        rows = [("layer", "ONNX", "MNN", "shape", "max abs", "cosine", "SNR", "own SNR", "")]
        for layer in self.layers:
            shape = "×".join(map(str, layer.shape)) or "scalar"
            figures = f"{layer.max_abs:.1e}", f"{layer.cosine:.6f}", *map(_decibels, (layer.snr_db, layer.own_snr_db))
            mark = "" if layer.ok else f"<-- {layer.note}"
            rows.append((layer.name, layer.onnx_op, layer.mnn_op, shape, *figures, mark))
        widths = [max(len(row[column]) for row in rows) for column in range(8)]
        lines = [
            "  ".join([*(cell.rjust(width) if column > 3 else cell.ljust(width)
                        for column, (cell, width) in enumerate(zip(row, widths, strict=False))), row[8]]).rstrip()
            for row in rows
        ]  # fmt: skip
        first = self.first
        verdict = f"starts to differ at {first.name} ({first.onnx_op})" if first else "every layer agrees"
        unmatched = [f"not compared: {', '.join(self.unmatched)}"] if self.unmatched else []
        return "\n".join([f"{verdict}; SNR in dB", *lines, *unmatched])


def _decibels(value):
    return "exact" if value == np.inf else "-" if value == -np.inf else f"{value:.0f}"


def layer_parity(onnx_path, mnn_path, inputs, *, timeout=300):
    """Where does a converted model start to differ from its ONNX file? Returns a `LayerReport`; `.first` is the answer.

    inputs: an array or {name: array}, real ones: a layer that gets zeros shows nothing. Both engines run in child
    processes and keep every tensor; `helpers.intermediates` tells which is which. Then ONNX Runtime computes every
    layer once more from *MNN's* tensors, so that a layer is judged by what it does itself (own SNR), not by what it was
    given: neither the errors of the layers before it nor rounding that a deep network amplifies count against it.

    A layer is right when its own SNR is at least 90 dB, or 60 dB where MNN stores its weights in half precision or
    approximates (Gelu), or when it differs by less than a millionth of the largest number it was given.

    Raises FileNotFoundError; ValueError when a file is not what its name says, inputs or outputs have other names in
    the two, or `inputs` do not fit; RuntimeError when an engine gives up, NativeError when it crashes or takes longer
    than `timeout` seconds.
    """
    onnx_path, mnn_path = Path(onnx_path), Path(mnn_path)
    for path in (onnx_path, mnn_path):
        if not path.is_file():
            raise FileNotFoundError(f"layer_parity() needs {short(path)}, which does not exist.")

    graph = intermediates.read_onnx(onnx_path)
    inputs = inputs if isinstance(inputs, dict) else {graph.inputs[0]: inputs}
    inputs = {name: np.asarray(array) for name, array in inputs.items()}
    reference = intermediates.onnx_tensors(onnx_path, inputs, graph.tensors, timeout=timeout)
    operators, half, found = native.call(
        "helpers.intermediates:mnn_tensors", mnn_path, inputs, graph, timeout=timeout
    )[0]
    layers = intermediates.match(graph, operators)
    arrays = {layer.tensor: _like(reference[layer.tensor], found[layer.mnn_tensor]) for layer in layers}
    given = {name: array for name, array in arrays.items() if array is not None and array.dtype.kind == "f"}
    own = intermediates.onnx_tensors(onnx_path, inputs, list(arrays), given, timeout=timeout)
    given |= inputs
    matched = {node for layer in layers for node in layer.nodes}
    return LayerReport(
        tuple(
            _judge(layer, reference[layer.tensor], own[layer.tensor], found[layer.mnn_tensor],
                   [given[name] for name in layer.inputs if name in given], half)
            for layer in layers
        ),
        tuple(node.name for node in graph.nodes if node not in matched),
    )  # fmt: skip


def _like(reference, array):
    """MNN's array in ONNX's shape and dtype, None when axes of length 1 do not explain the difference."""
    if [side for side in array.shape if side != 1] != [side for side in reference.shape if side != 1]:
        return None
    return array.reshape(reference.shape).astype(reference.dtype)


def _judge(layer, reference, own, found, given, half):
    """The LayerParity of one layer. own: ONNX Runtime's result from `given`, MNN's tensors; found: MNN's, as it is."""
    limit = COARSE if half or any(node.type == "Gelu" for node in layer.nodes) else EXACT
    shape, found = found.shape, _like(reference, found)
    figures = {"max_abs": np.inf, "cosine": np.nan, "snr_db": -np.inf, "own_snr_db": -np.inf, "ok": False}
    if found is not None:
        up_to_here, alone = compare(reference, found), compare(own, found)
        largest = max((np.abs(a[np.isfinite(a)]).max(initial=0) for a in given if a.dtype.kind == "f"), default=0)
        figures = {
            "max_abs": up_to_here.max_abs,
            "cosine": up_to_here.cosine,
            "snr_db": snr(reference, found),
            "own_snr_db": snr(own, found),
            "ok": bool(snr(own, found) >= limit or alone.max_abs <= ROUNDING * largest),
        }
    return LayerParity(
        name=layer.nodes[0].name,
        nodes=tuple(node.name for node in layer.nodes),
        onnx_op=layer.onnx_op,
        mnn_op=layer.mnn_op,
        tensor=layer.tensor,
        shape=reference.shape,
        limit_db=limit,
        note="" if found is not None else f"shape {'×'.join(map(str, shape))} in MNN",
        **figures,
    )
