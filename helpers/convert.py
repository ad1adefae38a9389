"""From an ONNX file to an MNN file, with the converter's silence turned into errors.

MNN's converter returns True and exit code 0 whatever happened. `convert_onnx` runs it in a child process, reads its
log, loads what it wrote, and only then puts the file in place.
"""

import contextlib
import importlib.metadata
import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import native
from .onnx_export import files
from .paths import ARTIFACTS, atomic_write, short


class ConversionError(native.ToolError):
    """The converter did not produce the model that was asked for. `log` holds all it printed."""


@dataclass(frozen=True)
class Op:
    """One operator of a .mnn file.

    activation: "relu" or "relu6" where one was fused into it, else "". inputs, outputs: names of tensors. layout: the
    memory order that an Input declares ("NCHW") or a ConvertTensor changes ("NCHW→NC4HW4"), else "".
    """

    type: str
    name: str
    activation: str = ""
    inputs: tuple = ()
    outputs: tuple = ()
    layout: str = ""

    def __str__(self):
        return f"{self.type}+{self.activation}" if self.activation else self.type


@dataclass(frozen=True)
class ConversionReport:
    """A successful conversion; prints itself.

    onnx_bytes counts external weights too. inputs and outputs: {name: {"shape": [...], "dtype": "float32"}} as in the
    ONNX file. ops_before: Counter of ONNX operator types; ops_after: list of `Op` of the .mnn file. arguments: the
    exact argument list. seconds: the conversion itself.
    """

    source: Path
    path: Path
    onnx_bytes: int
    mnn_bytes: int
    seconds: float
    inputs: dict
    outputs: dict
    ops_before: Counter
    ops_after: list = field(repr=False)
    log: str = field(repr=False)
    version: str
    arguments: list

    def __str__(self):
        change = self.mnn_bytes / self.onnx_bytes - 1
        return (
            f"{short(self.source)} → {short(self.path)} (MNN {self.version})\n"
            f"  bytes   {self.onnx_bytes:,} → {self.mnn_bytes:,} ({change:+.1%})\n"
            f"  ops     {sum(self.ops_before.values())} → {len(self.ops_after)}\n"
            f"  inputs  {_describe(self.inputs)}\n"
            f"  outputs {_describe(self.outputs)}"
        )


def _describe(tensors):
    return ", ".join(f"{name} {tensor['shape']} {tensor['dtype']}" for name, tensor in tensors.items())


def convert_onnx(
    onnx_path, mnn_path, *, fp16=False, weight_bits=None, weight_block=None, asymmetric=False, optimize_level=1,
    options=(), timeout=300,
):  # fmt: skip
    """Convert an ONNX file to `mnn_path` and return a `ConversionReport`.

    fp16: store weights as half precision. weight_bits: store them as 2 to 8 bit integers, per output channel or, with
    weight_block, per block of that many elements; asymmetric: with a zero point. optimize_level: 0, 1 or 2 as in the
    converter's --help. options: further converter options, written "--name=value". timeout: seconds.

    The file's label (bizCode) is set to the ONNX model's names, shapes and dtypes as JSON: MNN itself forgets which
    axes are dynamic and how many axes some outputs had, and the runners in `helpers.runtime` read it back.

    Raises ValueError for settings that cannot work, and ConversionError, with the tool's own words, when the source is
    no usable ONNX file, an operator is not supported, an option was ignored, or the tool crashed, took too long or
    wrote nothing that loads. After an error `mnn_path` is as it was before.
    """
    onnx_path, mnn_path = Path(onnx_path), Path(mnn_path)
    settings = _settings(fp16, weight_bits, weight_block, asymmetric, optimize_level, options)
    log_path = ARTIFACTS / "logs" / f"convert-{mnn_path.stem}.log"
    model, problem = _read_onnx(onnx_path)
    signature = _signature(model) if model else {}
    with atomic_write(mnn_path) as temporary:
        command = [
            "MNNConvert", "-f", "ONNX", "--modelFile", str(onnx_path.absolute()),
            "--MNNModel", str(temporary.absolute()), "--bizCode", json.dumps(signature), *settings,
        ]  # fmt: skip
        try:
            (ops_after, seconds), log = native.call(
                "helpers.convert:_convert_in_child", command, temporary, timeout=timeout, log_path=log_path
            )
        except native.NativeError as error:
            ops_after, seconds, log = None, error.seconds, error.log
            problem = problem or f"the converter {_ending(error, timeout)}"
        problem = problem or _problem(log, model, ops_after)
        if problem:
            raise ConversionError(
                f"MNN cannot convert '{short(onnx_path)}': {problem}\n"
                f"The converter's own words: {_own_words(log, onnx_path)}\nIts log: {short(log_path)}",
                log,
            )
        mnn_bytes = temporary.stat().st_size
    command[command.index("--MNNModel") + 1] = str(mnn_path.absolute())
    return ConversionReport(
        source=onnx_path, path=mnn_path, onnx_bytes=sum(file.stat().st_size for file in files(onnx_path)),
        mnn_bytes=mnn_bytes, seconds=seconds, inputs=signature["inputs"], outputs=signature["outputs"],
        ops_before=Counter(node.op_type for node in model.graph.node if node.op_type != "Constant"),
        ops_after=ops_after, log=log, version=importlib.metadata.version("MNN"), arguments=command,
    )  # fmt: skip


def graph_ops(mnn_path):
    """The operators stored in a .mnn file, in order, as a list of `Op`. Raises FileNotFoundError or NativeError."""
    if not Path(mnn_path).is_file():
        raise FileNotFoundError(f"{short(mnn_path)} does not exist. Make it with convert_onnx().")
    return native.call("helpers.convert:_list_ops", Path(mnn_path))[0]


def _settings(fp16, weight_bits, weight_block, asymmetric, optimize_level, options):
    """The converter's options for these settings, booleans always written out (without "=1" they mean the opposite)."""
    if weight_bits is not None and weight_bits not in range(2, 9):
        raise ValueError(f"weight_bits must be an integer from 2 to 8, or None; found {weight_bits!r}.")
    if weight_bits is None and (weight_block is not None or asymmetric):
        raise ValueError("weight_block and asymmetric say how weights are quantized: give weight_bits too.")
    if weight_bits is not None and fp16:
        raise ValueError("Weights are stored either as half precision (fp16) or as integers (weight_bits), not both.")
    if weight_block is not None and weight_block < 1:
        raise ValueError(f"weight_block must be a positive number of elements; found {weight_block!r}.")
    if optimize_level not in (0, 1, 2):
        raise ValueError(f"optimize_level must be 0, 1 or 2; found {optimize_level!r}.")
    bare = [option for option in options if option in ("--keepInputFormat", "--weightQuantAsymmetric")]
    if bare:
        raise ValueError(f"{bare[0]} without a value means its opposite to the converter: write {bare[0]}=1 or =0.")
    settings = [f"--optimizeLevel={optimize_level}"]
    if fp16:
        settings.append("--fp16")
    if weight_bits is not None:
        settings += [f"--weightQuantBits={weight_bits}", f"--weightQuantAsymmetric={int(asymmetric)}"]
    if weight_block is not None:
        settings.append(f"--weightQuantBlock={weight_block}")
    return settings + list(options)


def _read_onnx(path):
    """The model (without its external weights) and None, or None and what is wrong with the file, in words."""
    import onnx

    if not path.is_file():
        return None, "there is no such file. Export it first (notebook 02), and check the path."
    if path.stat().st_size == 0:
        return None, "the file is empty: an export that was interrupted? Export the model again (notebook 02)."
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # protobuf's DecodeError, whose class differs between its implementations
        model = None
    if model is None or not model.graph.node:
        return None, "this is not an ONNX file, or one without any operator. Export the model again (notebook 02)."
    missing = [short(file) for file in files(path)[1:] if not file.is_file()]
    if missing:
        return model, (
            f"its weights are kept in {', '.join(missing)}, which is missing. Move both files together, "
            "or export with external_data=False."
        )
    return model, None


def _signature(model):
    """Names, shapes (a str or None where dynamic) and numpy dtypes of an ONNX model's inputs and outputs."""
    import onnx

    def tensors(values):
        return {
            value.name: {
                "shape": None if not value.type.tensor_type.HasField("shape") else [
                    side.dim_value if side.HasField("dim_value") else side.dim_param or None
                    for side in value.type.tensor_type.shape.dim
                ],
                "dtype": str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            }
            for value in values
        }  # fmt: skip

    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        "inputs": tensors(value for value in model.graph.input if value.name not in weights),
        "outputs": tensors(model.graph.output),
    }


def _convert_in_child(command, output):
    """Run the converter; return the operators it wrote (None: no file) and its seconds. In a child process only."""
    import _tools

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        _tools.mnnconvert(command)
    seconds = time.perf_counter() - start
    return (_list_ops(output) if output.exists() else None), seconds


def _list_ops(mnn_path):
    """The operators of a .mnn file. In a child process only."""
    net = read_mnn(mnn_path)
    return [op_of(entry, net.get("tensorName", [])) for entry in net.get("oplists", [])]


def read_mnn(mnn_path):
    """An .mnn file as a dict, through the converter's JSON dump. In a child process only: native code does it."""
    import _tools

    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch, "model.json")
        _tools.mnnconvert(["MNNConvert", "-f", "MNN", "--modelFile", str(mnn_path), "--JsonFile", str(dump)])
        # The dump writes NaN and infinity as C does; JSON has no word for them.
        return json.loads(re.sub(r"([\[,:]\s*)-?(?:nan|inf)(?=\s*[,\]}])", r"\1NaN", dump.read_text(encoding="utf-8")))


def op_of(entry, tensors):
    """The `Op` of one entry of read_mnn()'s "oplists"; tensors: its "tensorName"."""
    details = entry.get("main") or {}
    common = details.get("common") or {}
    activation = next((name for name in ("relu6", "relu") if common.get(name)), "")
    inputs, outputs = (
        tuple(tensors[index] for index in entry.get(key) or ()) for key in ("inputIndexes", "outputIndexes")
    )
    layout = {
        "Input": details.get("dformat", ""),
        "ConvertTensor": f"{details.get('source', '?')}→{details.get('dest', '?')}",
    }.get(entry["type"], "")
    return Op(entry["type"], entry["name"], activation, inputs, outputs, layout)


def _ending(error, timeout):
    if error.returncode is None:
        return f"had no result after {timeout:g} s and was stopped. Give it more with timeout=, or a smaller model."
    return (
        f"crashed: {native.Finished(error.returncode, '', 0).ending}. Check the settings and the graph; if they are "
        "right, this is a fault of the converter worth reporting with its log."
    )


def _problem(log, model, ops):
    """What went wrong although nothing was raised, in words; None when all is well."""
    unsupported = sorted(set(re.findall(r"ONNX::(\w+)", " ".join(re.findall(r"These Op Not Support:(.*)", log)))))
    if unsupported:
        nodes = [f"{node.op_type} (node '{node.name or node.output[0]}')" for node in model.graph.node
                 if node.op_type in unsupported]  # fmt: skip
        return (
            f"operator {', '.join(nodes) or ', '.join(unsupported)} is not supported by MNN "
            f"{importlib.metadata.version('MNN')}. Replace it before exporting (notebook 05, what can go wrong)."
        )
    ignored = re.findall(r"Not support option: (.*)", log)
    if ignored:
        return f"the converter does not know the option {', '.join(ignored)} and ignored it. See its --help."
    unblocked = re.findall(r"weightQuantBlock=(\d+), inputChannel=(\d+): don't use block-quant", log)
    if unblocked and len(unblocked) >= sum(op.type == "Convolution" for op in ops or ()):
        channels = ", ".join(dict.fromkeys(channel for _, channel in unblocked))
        return (
            f"the converter ignored the block size {unblocked[0][0]} in every layer: it does not fit their input "
            f"channels ({channels}). Choose one that divides the largest of them, or leave weight_block out."
        )
    if "Converted Success!" not in log or ops is None:
        return "the converter wrote no model."
    if re.search(r"Can't open file|Reshape error|Compute Shape Error|should be Constant", log):
        return "the converter reported an error and then wrote a model all the same; it is not to be trusted."
    if not any(op.type != "Input" for op in ops):
        return "the model it wrote holds no operator."
    return None


def _own_words(log, onnx_path):
    """The lines of the log that are not about the normal course of a conversion, with the file's short name."""
    usual = (
        r"The device supports|Start to |ONNX Model (ir|opset) version|(input|output)Tensors|has convert to JsonFile"
        r"|Don't has bizCode"
    )
    log = log.replace(str(onnx_path.absolute()), short(onnx_path))
    lines = [re.sub(r"^\[[\d:]+\] :\d+: ", "", line).strip() for line in log.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line and not re.search(usual, line))) or "(none)"
