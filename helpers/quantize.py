"""Fewer bits: INT8 arithmetic calibrated on samples, weights stored as small integers, and what each costs.

MNN's quantizer says "Quantize model done!" to a model it left as it was, and crashes over a wrong letter.
`calibrate_int8` checks what goes in, runs it in a child process, and looks at what came out.
"""

import contextlib
import json
import re
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from . import native
from .bench import Ratio, race
from .calibration import CalibrationError, checked_samples, read_config, write_images, write_sequences
from .convert import convert_onnx, read_mnn
from .paths import ARTIFACTS, atomic_write, short, write_text
from .runtime import MnnModule, OrtModel, read_signature


@dataclass(frozen=True)
class TensorScale:
    """How one tensor is turned into integers: q = round(x / scale) + zero.

    low, high: the smallest and largest value this can express; what lies outside is clipped. clipped: the share (0 to
    1) of this tensor's values that does, in FP32, on the first 200 samples; None for a copy of another tensor.
    """

    name: str
    scale: float
    zero: int
    low: float
    high: float
    clipped: float | None


@dataclass(frozen=True)
class CalibrationReport:
    """A successful calibration; prints itself as a table.

    tensors: list of TensorScale. ops: names of the convolutions that now compute in integers (MNN makes fully connected
    layers into convolutions too); ops_left: those that do not. bytes: of the new file. config: what the quantizer was
    told (its JSON). seconds: the child process.
    """

    source: Path
    path: Path
    samples: int
    tensors: list
    ops: list
    ops_left: list
    bytes: int
    seconds: float
    config: dict = field(repr=False)
    log: str = field(repr=False)

    def tensor(self, name):
        """The TensorScale called `name`."""
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def __str__(self):
        counted = [tensor for tensor in self.tensors if tensor.clipped is not None]
        width = max([len(tensor.name) for tensor in counted], default=6)
        method = self.config["feature_quantize_method"]
        return "\n".join([
            f"{short(self.source)} → {short(self.path)} ({method}, {self.samples} samples, {self.bytes:,} bytes)",
            f"  {len(self.ops)} of {len(self.ops) + len(self.ops_left)} convolutions compute in integers",
            f"  {'tensor':{width}} {'scale':>9} {'zero':>5} {'from':>7} {'to':>7} {'clipped':>8}",
            *(f"  {t.name:{width}} {t.scale:9.6f} {t.zero:5} {t.low:7.2f} {t.high:7.2f} {t.clipped:8.2%}"
              for t in counted),
        ])  # fmt: skip


def calibrate_int8(
    mnn_path, out_path, samples, *, method="KL", weight_method="MAX_ABS", batch_size=50, skip_ops=(), image=None,
    input_range=None, timeout=300,
):  # fmt: skip
    """Give an FP32 .mnn file with one input integer arithmetic, calibrated on samples; return a `CalibrationReport`.

    samples: float array [N, ...] as the model is fed in use, or a folder of images with image={"format": "GRAY",
    "mean": [...], "normal": [...]}, value = (pixel - mean) * normal. input_range: (smallest, largest) value that the
    model sees in use; samples that leave it, or fill less than half of it, are then refused.
    method: "KL" (symmetric; looks for the range that keeps the histogram's shape) or "EMA" (asymmetric; a moving
    average of each batch's smallest and largest value). batch_size: for EMA; a model with a fixed batch gets its own.
    skip_ops: names of convolutions to leave alone, for KL only (EMA ignores them).

    The label of the source, which names its inputs and outputs, is kept. Raises ValueError for settings that cannot
    work, CalibrationError for a source, samples or a result that cannot be used. `out_path` is then as it was before.
    """
    mnn_path, out_path = Path(mnn_path), Path(out_path)
    if method == "ADMM":
        raise ValueError('method "ADMM" corrupts memory in MNN 3.6.1 (notebook 08 shows it). Use "KL" or "EMA".')
    if method not in ("KL", "EMA"):
        raise ValueError(f'method must be "KL" or "EMA", in capitals; found {method!r}.')
    if weight_method != "MAX_ABS":
        raise ValueError(f'weight_method must be "MAX_ABS", the one that works in MNN 3.6.1; found {weight_method!r}.')
    if skip_ops and method == "EMA":
        raise ValueError('skip_ops has no effect with "EMA": the quantizer ignores it. Use "KL".')
    spec = _only_input(mnn_path)
    samples = checked_samples(samples, spec, image, input_range)
    batch = spec.shape[0] if isinstance(spec.shape[0], int) else min(batch_size, len(samples))
    with tempfile.TemporaryDirectory(prefix="mnn-course-") as folder:
        folder = Path(folder)
        config = {
            "feature_quantize_method": method, "weight_quantize_method": weight_method, "batch_size": batch,
            "skip_quant_op_names": list(skip_ops),
        }  # fmt: skip
        if method == "EMA" and batch > 1:
            # Sequences are read one at a time: of a batch of them MNN 3.6.1 keeps the last. Images are read as a batch.
            config |= write_images(samples, folder / "samples", spec)
        else:
            config |= write_sequences(samples, folder / "samples", spec)
        write_text(folder / "config.json", json.dumps(config))
        return _run(mnn_path, out_path, folder / "config.json", samples, timeout)


def run_mnnquant(mnn_path, out_path, config_path, *, timeout=300):
    """Run MNN's quantizer with a JSON file of your own, as its documentation describes; return a `CalibrationReport`.

    Raises CalibrationError, with the cause where it can be told, for all that fails silently or crashes: JSON that
    cannot be read, a method that does not exist, a folder that is missing or empty, an image format or size that is not
    the model's input, a batch above a fixed one, and a result without a single integer operator.
    """
    return _run(Path(mnn_path), Path(out_path), Path(config_path), None, timeout)


def _run(mnn_path, out_path, config_path, samples, timeout):
    spec = _only_input(mnn_path)
    config, cause = read_config(config_path, spec)
    log_path = ARTIFACTS / "logs" / f"quantize-{out_path.stem}.log"
    log = ""
    with atomic_write(out_path) as temporary:
        start = time.perf_counter()
        try:
            found, log = native.call(
                "helpers.quantize:_quantize_in_child", mnn_path.absolute(), temporary.absolute(),
                config_path.absolute(), samples, timeout=timeout, log_path=log_path,
            )  # fmt: skip
        except native.NativeError as error:
            log = error.log
            ending = native.Finished(error.returncode, "", 0).ending if error.returncode is not None else "out of time"
            found, cause = None, cause or f"the quantizer crashed ({ending})."
        seconds = time.perf_counter() - start
        if found is None:
            cause = cause or "the quantizer wrote no file, although it returned True."
        elif not found["ops"]:
            cause = cause or "not one operator was quantized, although the log says that all went well."
        if cause:
            raise CalibrationError(
                f"MNN cannot quantize '{short(mnn_path)}': {cause}\n"
                f"The quantizer's last words: {_last_words(log)}\nIts log: {short(log_path)}",
                log,
            )
        count = config.get("used_sample_num") or config.get("used_image_num") or 0
        return CalibrationReport(
            source=mnn_path, path=out_path, samples=count, bytes=temporary.stat().st_size, seconds=seconds,
            config={**config, "path": _name(config.get("path", ""))}, log=log, **found,
        )  # fmt: skip


def _only_input(mnn_path):
    if not mnn_path.is_file():
        raise CalibrationError(f"{short(mnn_path)} does not exist. Convert the model first (notebook 05).")
    try:
        inputs, _ = read_signature(mnn_path)
    except ValueError as error:
        raise CalibrationError(str(error)) from None
    if len(inputs) != 1:
        raise CalibrationError(
            f"{short(mnn_path)} has {len(inputs)} inputs; calibration here feeds one. Write the JSON by hand and use "
            "run_mnnquant()."
        )
    return inputs[0]


def _last_words(log):
    lines = [line.rpartition("\r")[2].strip() for line in log.splitlines()]
    return re.sub(r"^\[[\d:]+\] @ \d+: ", "", next((line for line in reversed(lines) if line), "(none)"))


def _quantize_in_child(source, target, config, samples):
    """Run the quantizer; return what it wrote (None: nothing). In a child process only."""
    import _tools

    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        _tools.mnnquant(["mnnquant", str(source), str(target), str(config)])
        if not target.exists():
            return None
        label = read_mnn(source).get("bizCode", "")
        net = read_mnn(target)
        if label and not net.get("bizCode"):  # EMA forgets it
            unlabelled = target.rename(target.with_name("unlabelled.mnn"))
            _tools.mnnconvert(["MNNConvert", "-f", "MNN", "--modelFile", str(unlabelled), "--MNNModel", str(target),
                               "--bizCode", label, "--optimizeLevel=0"])  # fmt: skip
            net = read_mnn(target)
    return _findings(net, source, samples)


def _findings(net, source, samples):
    names = net["tensorName"]
    makers = {names[op["outputIndexes"][0]]: op for op in net["oplists"] if op.get("outputIndexes")}
    convolutions = [op for op in net["oplists"] if op["type"] in ("Convolution", "ConvolutionDepthwise")]
    quantized = [op["name"] for op in convolutions if (op["main"].get("quanParameter") or {}).get("scaleIn")]
    if not net.get("extraTensorDescribe"):
        quantized = []
    ranges = {}
    for entry in net.get("extraTensorDescribe", []):
        info, name = entry["quantInfo"], names[entry["index"]]
        low, high = ((info[end] - info["zero"]) * info["scale"] for end in ("min", "max"))
        ranges[name] = (info["scale"], int(info["zero"]), low, high)
    makers = {name: _maker(makers, names, ranges, name) for name in ranges}
    shares = _clipped_shares(source, samples, makers, ranges) if samples is not None else {}
    return {
        "tensors": [TensorScale(name, *ranges[name], shares.get(name)) for name in ranges],
        "ops": quantized,
        "ops_left": [op["name"] for op in convolutions if op["name"] not in quantized],
    }


def _maker(makers, names, ranges, name):
    """Name of the operator whose result a tensor is: an input, a convolution or a pooling; None for other copies."""
    op = makers.get(name)
    if op and op["type"] == "ConvertTensor":  # the input in another memory order is still the input; count it once
        before = makers.get(names[op["inputIndexes"][0]])
        return before["name"] if before and before["type"] == "Input" and before["name"] not in ranges else None
    if op and op["type"] in ("Convolution", "ConvolutionDepthwise", "Pooling", "Input"):
        return op["name"]
    return None


def _clipped_shares(source, samples, makers, ranges):
    """{tensor: share of its values outside its range}: the FP32 model computes the samples, a callback counts."""
    import MNN

    counts = {name: [0, 0] for name in ranges if makers[name]}
    net = MNN.Interpreter(str(source))
    session = net.createSession({"numThread": 1})
    inputs = net.getSessionInputAll(session)
    feed = next(iter(inputs.values()))
    fixed = read_signature(source)[0][0].shape[0]
    batch = fixed if isinstance(fixed, int) else 1

    def count(name, values):
        scale, _, low, high = ranges[name]
        counts[name][0] += int(((values < low - scale / 2) | (values > high + scale / 2)).sum())
        counts[name][1] += values.size

    def watch(tensors, op):
        for name in (name for name, maker in makers.items() if maker == op.getName()):
            shape = tensors[0].getShape()
            host = MNN.Tensor(shape, MNN.Halide_Type_Float, np.empty(shape, np.float32), MNN.Tensor_DimensionType_Caffe)
            tensors[0].copyToHostTensor(host)
            count(name, host.getNumpyData())
        return True

    net.resizeTensor(feed, (batch, *samples.shape[1:]))
    net.resizeSession(session)
    for start in range(0, min(200, len(samples)) - batch + 1, batch):
        some = np.ascontiguousarray(samples[start : start + batch])
        feed.copyFrom(MNN.Tensor(some.shape, MNN.Halide_Type_Float, some, MNN.Tensor_DimensionType_Caffe))
        net.runSessionWithCallBackInfo(session, lambda tensors, op: True, watch)
    for name in counts:
        if makers[name] in inputs:
            count(name, samples)
    return {name: outside / total for name, (outside, total) in counts.items() if total}


def noisy_ground(samples, seed=0):
    """The same samples with noise where nothing was: max(sample, uniform noise over the lower half of their range).

    KL keeps the shape of a histogram. Where most values are one and the same, as an image's black background is, that
    shape is one spike and the range shrinks to it. Noise on the ground spreads it out; the strokes stay as they are.
    samples: float array of any shape.
    """
    low, high = samples.min(), samples.max()
    noise = low + (high - low) / 2 * np.random.default_rng(seed).random(samples.shape)
    return np.maximum(samples, noise).astype(np.float32)


@dataclass(frozen=True)
class Variant:
    """One file of the table: accuracy 0 to 1 on the images given; changed: predictions unlike FP32's on ONNX Runtime;
    max_change: the largest change of a logit; latency: bench.Ratio of the time to FP32's for one image and one thread,
    or None; how: the settings, as keywords.
    """

    name: str
    path: Path
    bytes: int
    accuracy: float
    changed: int
    max_change: float
    latency: Ratio | None
    how: dict
    logits: np.ndarray = field(repr=False)


class Variants(list):
    """A list of `Variant`, FP32 first, that prints itself as a table and finds a row by its name."""

    def __getitem__(self, key):
        return next(row for row in self if row.name == key) if isinstance(key, str) else super().__getitem__(key)

    def __str__(self):
        width = max(len(row.name) for row in self)
        heads = f"{'bytes':>8} {'of FP32':>8} {'right':>7} {'changed':>8} {'max change':>11}  time / FP32's"
        lines = [f"{'':{width}} {heads}"]
        for row in self:
            lines.append(
                f"{row.name:{width}} {row.bytes:8,} {row.bytes / self[0].bytes:8.1%} {row.accuracy:7.2%} "
                f"{row.changed:8,} {row.max_change:11.2g}  {row.latency or '-'}"
            )
        return "\n".join(lines)


WEIGHT_ONLY = {
    "FP32": {},
    "fp16": {"fp16": True},
    "8 bits": {"weight_bits": 8},
    "6 bits": {"weight_bits": 6},
    "4 bits": {"weight_bits": 4},
    "4 bits, asymmetric": {"weight_bits": 4, "asymmetric": True},
    "4 bits, block 32": {"weight_bits": 4, "asymmetric": True, "weight_block": 32},
    "4 bits, block 32, HQQ": {"weight_bits": 4, "asymmetric": True, "weight_block": 32, "options": ("--hqq",)},
    "3 bits": {"weight_bits": 3},
    "3 bits, asymmetric": {"weight_bits": 3, "asymmetric": True},
    "2 bits": {"weight_bits": 2},
    "2 bits, asymmetric": {"weight_bits": 2, "asymmetric": True},
}
"""The variants that differ in how weights are stored: name → settings of convert_onnx."""

INT8 = {
    "INT8, KL": {"method": "KL"},
    "INT8, KL, noisy ground": {"method": "KL", "noisy": True},
    "INT8, EMA": {"method": "EMA"},
}
"""The variants that compute in integers: name → settings of calibrate_int8; noisy: samples through noisy_ground()."""


def make_int8(source, path, *, count=200, noisy=True, method="KL"):
    """The course's way to an INT8 model: `count` training images, calibrated; returns the CalibrationReport."""
    from .data import MEAN, STD, calibration_samples

    samples = calibration_samples(count)
    samples = noisy_ground(samples) if noisy else samples
    return calibrate_int8(source, path, samples, method=method, input_range=(-MEAN / STD, (1 - MEAN) / STD))


def variants(onnx_path, images=None, labels=None, *, folder=None, timed=True):
    """Make every variant of the course network's ONNX file and measure it; returns `Variants`.

    images, labels: what to judge by, default all 10,000 test images. folder: where the files go, default
    artifacts/variants; files newer than the ONNX file are reused. timed: also the latency ratios, in one interleaved
    run of one image and one thread.
    """
    from .data import test_set

    onnx_path, folder = Path(onnx_path), Path(folder or ARTIFACTS / "variants")
    if images is None:
        images, labels = test_set()
    paths = {}
    for name, settings in {**WEIGHT_ONLY, **INT8}.items():
        paths[name] = folder / f"{re.sub('[^A-Za-z0-9]+', '_', name).lower()}.mnn"
        if paths[name].exists() and paths[name].stat().st_mtime >= onnx_path.stat().st_mtime and (
            _sidecar(paths[name]).exists()
        ):
            continue
        if name in INT8:
            report = make_int8(paths["FP32"], paths[name], **{"noisy": False, **settings})
            made = {"tool": "mnnquant", "config": report.config, "samples": _SAMPLES.format(report.samples),
                    "noisy_ground": settings.get("noisy", False), "source": _made_by(paths["FP32"])}  # fmt: skip
        else:
            report = convert_onnx(onnx_path, paths[name], **settings)
            made = {"tool": "mnnconvert", "arguments": [_name(word) for word in report.arguments]}
        write_text(_sidecar(paths[name]), json.dumps(made, indent=2) + "\n")
    reference = logits_of(OrtModel(onnx_path, threads=2), images)
    models = {name: partial(MnnModule(path), images[:1]) for name, path in paths.items()} if timed else {}
    times = race(models, threads=1) if timed else None
    table = Variants()
    for name, path in paths.items():
        logits = logits_of(MnnModule(path, threads=2), images)
        answers = logits.argmax(1)
        table.append(Variant(
            name, path, path.stat().st_size, accuracy=float((answers == labels).mean()),
            changed=int((answers != reference.argmax(1)).sum()), max_change=float(np.abs(logits - reference).max()),
            latency=times and times.ratio(name), how={**WEIGHT_ONLY, **INT8}[name], logits=logits,
        ))  # fmt: skip
    return table


_SAMPLES = "{} training images, drawn by helpers.data.calibration_samples with seed 0"


def _name(word):
    """A path among the arguments without the folders of this machine."""
    return Path(word).name if Path(word).is_absolute() else word


def _sidecar(path):
    """The file beside a variant that says how it was made."""
    return path.with_suffix(".json")


def _made_by(path):
    return json.loads(_sidecar(path).read_text(encoding="utf-8"))


def logits_of(model, images, batch=250):
    """Logits of all images, [N, 10], in batches."""
    return np.concatenate([model(images[start : start + batch]) for start in range(0, len(images), batch)])
