"""One way to ask four engines: `model(array) → array`, for PyTorch, ONNX Runtime, MNN's Module and MNN's Session.

Every runner takes one array, or {input name: array}, and returns one array, or {output name: array} when the model has
several outputs. Shapes and ranks are those of the ONNX model. What is given is checked first (ValueError); what is
returned belongs to the caller: running again never changes it. NaN and infinity in the input are passed on to the
engine. A runner is meant for one thread at a time.

Next to an engine that answers in 50 µs, Python's own work counts. So what depends only on dtypes and shapes (checks,
MNN's placeholders and host tensors) is done when they change, and remembered for the calls that follow.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .native import quietly
from .paths import short

FLOAT32 = np.dtype("float32")


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of an input or output; shape and dtype are None where the model does not tell.

    In the shape a str or None stands for a dynamic axis.
    """

    name: str
    shape: tuple | None
    dtype: np.dtype | None

    def __str__(self):
        shape = "?" if self.shape is None else ", ".join("?" if side is None else str(side) for side in self.shape)
        return f"'{self.name}' [{shape}] {self.dtype}"


class Runner:
    """What the four runners share: `inputs` and `outputs` ({name: TensorSpec}), the checks, the packing of results."""

    def __init__(self, label, inputs, outputs):
        self.label = label
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        self._shapes = None  # of the inputs in the call before
        self._sizes = {}  # and the sizes that the dynamic axes had in it
        self._known_input = self._known_output = None  # (dtype, shape) that passed, where there is one of each

    def __repr__(self):
        inputs, outputs = (", ".join(map(str, specs.values())) for specs in (self.inputs, self.outputs))
        return f"{self.label}: {inputs} → {outputs}"

    def __call__(self, inputs):
        # The usual call gives one array like the one before: nothing is left to check, and every line costs time.
        if (
            type(inputs) is np.ndarray
            and (inputs.dtype, inputs.shape) == self._known_input
            and inputs.flags.c_contiguous
        ):
            result = self._again(inputs)
            known = (result.dtype, result.shape) == self._known_output
            return result if known else self._as_promised([result])
        return self._as_promised(self._run(self._checked(inputs)))

    def named(self, inputs):
        """The same as a dict, {output name: array}, also where there is only one output. Not for a TorchModel."""
        result = self(inputs)
        return result if isinstance(result, dict) else {next(iter(self.outputs)): result}

    def _again(self, array):
        """_run() for one input of the shape before, and one output."""
        return self._run([array])[0]

    def _run(self, arrays):
        """Arrays as the engine returns them, owned by the caller, in the order of `outputs`."""
        raise NotImplementedError

    def _prepare(self, arrays):
        """Called before _run when the shapes are not those of the call before."""

    def _checked(self, inputs):
        """Contiguous arrays of the right dtype and shape, in the order of `inputs`; the engine is prepared for them."""
        if not isinstance(inputs, dict):
            if len(self.inputs) != 1:
                raise ValueError(
                    f"{self.label} has {len(self.inputs)} inputs: give a dict with {', '.join(map(repr, self.inputs))}."
                )
            inputs = {next(iter(self.inputs)): inputs}
        if set(inputs) != set(self.inputs):
            found = sorted(map(str, inputs))
            raise ValueError(f"{self.label} expects the inputs {sorted(self.inputs)}, found {found}.")
        sizes = {}
        arrays = [self._checked_one(spec, inputs[name], sizes) for name, spec in self.inputs.items()]
        shapes = [array.shape for array in arrays]
        if shapes != self._shapes:
            self._shapes = self._known_input = self._known_output = None  # should the engine refuse them
            self._prepare(arrays)
            self._shapes, self._sizes = shapes, sizes
            if len(arrays) == len(self.outputs) == 1:
                self._known_input = arrays[0].dtype, arrays[0].shape
        return arrays

    def _checked_one(self, spec, given, sizes):
        array = np.asarray(given)
        found = f"{self.label} expects {spec}, found {array.dtype} {list(array.shape)}"
        if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            raise ValueError(f"{found}. Convert it first: array.astype('{spec.dtype}').")
        if spec.shape is not None and array.ndim != len(spec.shape):
            missing = len(spec.shape) - array.ndim
            hint = f" Add the missing axes in front: array[{'None, ' * (missing - 1)}None]." if missing > 0 else ""
            raise ValueError(f"{found}.{hint}")
        for axis, (side, size) in enumerate(zip(spec.shape or (), array.shape, strict=False)):
            expected = side if isinstance(side, int) else sizes.setdefault(side, size) if side else size
            if size == 0 or size != expected:
                wanted = expected or "at least 1"
                raise ValueError(f"{found}: axis {axis} must be {wanted}.{self._batch_hint(axis, side)}")
        with np.errstate(over="ignore"):
            cast = np.ascontiguousarray(array, dtype=spec.dtype).reshape(array.shape)
        lost = np.isinf(cast) & ~np.isinf(array) if cast.dtype.kind == "f" else cast != array
        if array.dtype != spec.dtype and lost.any():
            raise ValueError(f"{found}: {array[lost][0]} does not fit into {spec.dtype}.")
        return cast

    def _gave_up(self, arrays):
        """The exception for an engine that refuses to run; the next call prepares it anew."""
        self._shapes = self._known_input = None
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in zip(self.inputs, arrays, strict=True))
        return RuntimeError(
            f"{self.label} could not run on {shapes}: the engine rejects these shapes. If the batch is the cause, "
            "export the model with a dynamic batch (notebook 02) and convert it again."
        )

    @staticmethod
    def _batch_hint(axis, side):
        if axis == 0 and isinstance(side, int):
            return " The model's batch is fixed: export a dynamic batch (notebook 02), or call it once per item."
        return ""

    def _as_promised(self, results):
        """The one result, or a dict of them, in the shapes and dtypes that the ONNX model promises."""
        found = {
            name: self._as_in_onnx(name, array)
            for name, array in zip(self.outputs, results, strict=True)
        }  # fmt: skip
        if len(found) > 1:
            return found
        result = next(iter(found.values()))
        if (result.dtype, result.shape) == (results[0].dtype, results[0].shape):
            self._known_output = result.dtype, result.shape
        return result

    def _as_in_onnx(self, name, array):
        """The array in the shape and dtype that the ONNX model promises (MNN adds axes of length 1 at the end)."""
        spec = self.outputs[name]
        if spec.shape is not None and array.ndim != len(spec.shape):
            extra = array.ndim - len(spec.shape)
            if extra < 0 or any(side != 1 for side in array.shape[array.ndim - extra :]):
                raise RuntimeError(f"{self.label}: output {spec} came back with shape {list(array.shape)}.")
            array = array.reshape(array.shape[: array.ndim - extra])
        for side, size in zip(spec.shape or (), array.shape, strict=False):
            expected = side if isinstance(side, int) else self._sizes.get(side, size)
            if size != expected:
                raise RuntimeError(f"{self.label}: output {spec} came back with shape {list(array.shape)}.")
        return array if spec.dtype in (None, array.dtype) else array.astype(spec.dtype)


class TorchModel(Runner):
    """A PyTorch module as a runner; inputs are named as the arguments of its forward().

    Refuses to run a module in training mode: its answers would depend on chance and on the rest of the batch.
    Several outputs (a tuple) are named output_0, output_1, …
    """

    def __init__(self, module):
        import inspect

        dtype = next((p.dtype for p in module.parameters()), None)
        self._module = module
        self._dtype = np.dtype(str(dtype or "torch.float32").removeprefix("torch."))
        names = list(inspect.signature(module.forward).parameters)
        super().__init__(f"TorchModel({type(module).__name__})", [TensorSpec(n, None, self._dtype) for n in names], [])

    def __call__(self, inputs):
        if self._module.training:
            raise ValueError(f"{self.label} is in training mode: Dropout and BatchNorm are active. Call .eval() first.")
        import torch

        given = inputs if isinstance(inputs, dict) else {next(iter(self.inputs)): inputs}
        if not set(given) <= set(self.inputs):
            raise ValueError(f"{self.label} expects the inputs {sorted(self.inputs)}, found {sorted(map(str, given))}.")
        arrays = {name: np.asarray(value) for name, value in given.items()}
        with torch.inference_mode():
            result = self._module(**{
                name: torch.from_numpy(np.array(a, dtype=self._dtype if a.dtype.kind == "f" else a.dtype, order="C"))
                for name, a in arrays.items()
            })  # fmt: skip
        if isinstance(result, torch.Tensor):
            return result.numpy().copy()
        return {f"output_{index}": tensor.numpy().copy() for index, tensor in enumerate(result)}


class OrtModel(Runner):
    """An ONNX file on ONNX Runtime's CPU provider, with `threads` threads inside an operator."""

    def __init__(self, path, *, threads=1):
        import onnxruntime

        path = _existing(path, ".onnx file")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ValueError(f"ONNX Runtime cannot load {short(path)}: {error}") from error
        specs = [
            [TensorSpec(t.name, tuple(t.shape), _ort_dtype(t.type)) for t in tensors]
            for tensors in (self._session.get_inputs(), self._session.get_outputs())
        ]
        super().__init__(f"OrtModel('{path.name}')", *specs)
        self._names = list(self.inputs), list(self.outputs)

    def _run(self, arrays):
        inputs, outputs = self._names
        return self._session.run(outputs, dict(zip(inputs, arrays, strict=True)))


def _ort_dtype(name):
    """'tensor(float)' → float32, and so on."""
    inner = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(inner, inner))


class MnnModule(Runner):
    """An .mnn file through MNN's Module API, with `threads` threads.

    Raises FileNotFoundError, ValueError when the file is no MNN model, RuntimeError when the engine gives up or would
    compute with fewer threads than that (see _check_threads).
    """

    def __init__(self, path, *, threads=1):
        path = _existing(path, ".mnn file")
        inputs, outputs = read_signature(path)
        super().__init__(f"MnnModule('{path.name}')", inputs, outputs)
        with quietly():
            import MNN.expr
            import MNN.nn

            self._expr = MNN.expr
            _check_threads(path, threads)
            self._runtime = runtime_manager(threads)
            self._module = MNN.nn.load_module_from_file(
                str(path), list(self.inputs), list(self.outputs), runtime_manager=self._runtime
            )

    def _prepare(self, arrays):
        expr = self._expr
        self._variables = [
            expr.placeholder(list(array.shape), expr.NCHW, getattr(expr, mnn_type(array.dtype))) for array in arrays
        ]
        self._packed = None  # whether an output comes in MNN's own layout: seen after a run

    def _run(self, arrays):
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.write(_for_mnn(array))
        results = self._module.onForward(self._variables)  # forward() would crash where this returns an empty list
        if len(results) != len(self.outputs):
            raise self._gave_up(arrays)
        if self._packed is None:
            self._packed = any(result.data_format == self._expr.NC4HW4 for result in results)
        if self._packed:
            results = [self._expr.convert(result, self._expr.NCHW) for result in results]
        # read() is a view into memory that the next run overwrites, hence the copy.
        return [result.read().copy() for result in results]

    def _again(self, array):
        # The same without its loops, which would cost a tenth of a small network's time.
        if self._packed is not False or array.dtype is not FLOAT32:
            return super()._again(array)
        self._variables[0].write(array)
        results = self._module.onForward(self._variables)
        if not results:
            raise self._gave_up([array])
        return results[0].read().copy()


def runtime_manager(threads):
    """MNN's CPU with `threads` threads. Without one a module starts 4, whatever its thread_num argument says."""
    import MNN.nn

    return MNN.nn.create_runtime_manager(({"backend": 0, "numThread": threads},))


def _check_threads(path, threads):
    """Raises RuntimeError when MNN would compute with fewer threads than that in this process.

    All models of a process share one pool of threads, and whoever asks first for more than one decides its size. Who
    asks for more later gets the pool as it is, silently; but a session can be asked how many threads it has.
    """
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be a whole number, 1 or more; found {threads!r}.")
    if threads == 1:
        return
    import MNN

    interpreter = MNN.Interpreter(str(path))
    session = interpreter.createSession({"numThread": threads})  # the key "thread" would be ignored
    bits = interpreter.getSessionInfo(session, 4)  # THREAD_NUMBER, an integer that Python gets as if it were a float
    found = int(np.float32(bits).view(np.int32))
    if found != threads:
        raise RuntimeError(
            f"MNN cannot compute with {threads} threads: its pool, which serves the whole process, was started with "
            f"{found}. Load the model that needs most threads first, or use a fresh process (helpers.native.call)."
        )


class MnnSession(Runner):
    """An .mnn file through MNN's older API, Interpreter and Session, with `threads` threads. Raises as MnnModule."""

    def __init__(self, path, *, threads=1):
        path = _existing(path, ".mnn file")
        inputs, outputs = read_signature(path)
        super().__init__(f"MnnSession('{path.name}')", inputs, outputs)
        with quietly():
            import MNN

            self._mnn = MNN
            self._interpreter = MNN.Interpreter(str(path))  # owns the memory of every tensor below: keep it
            _check_threads(path, threads)
            self._session = self._interpreter.createSession({"numThread": threads})
        tensors = self._interpreter.getSessionInputAll(self._session)
        self._tensors = [tensors[name] for name in self.inputs]

    def bare(self):
        """A function that calls the engine's runSession() alone, on the input of the call before.

        It holds for as long as the model is not called with another shape.
        """
        run, session = self._interpreter.runSession, self._session
        return lambda: run(session)

    def memory(self):
        """Bytes that the engine holds for this session, as it reports them: weights as prepared, and all tensors."""
        return int(self._interpreter.getSessionInfo(self._session, 0) * 2**20)

    def _prepare(self, arrays):
        for tensor, array in zip(self._tensors, arrays, strict=True):
            self._interpreter.resizeTensor(tensor, array.shape)
        self._interpreter.resizeSession(self._session)
        self._hosts = [self._host(_for_mnn(array)) for array in arrays]
        self._results = [self._interpreter.getSessionOutput(self._session, name) for name in self.outputs]
        self._result_hosts = None  # the outputs' shapes are known for certain after a run only

    def _run(self, arrays):
        for tensor, (host, memory), array in zip(self._tensors, self._hosts, arrays, strict=True):
            memory[...] = _for_mnn(array)
            tensor.copyFrom(host)  # converts the layout; fromNumpy() on a session's tensor writes nothing
        if self._interpreter.runSession(self._session) != 0:
            raise self._gave_up(arrays)
        if self._result_hosts is None:
            # getNumpyData() shows the engine's own layout; only its dtype is used here.
            self._result_hosts = [
                self._host(np.empty(tensor.getShape(), tensor.getNumpyData().dtype)) for tensor in self._results
            ]
        for tensor, (host, _) in zip(self._results, self._result_hosts, strict=True):
            tensor.copyToHostTensor(host)
        return [memory.copy() for _, memory in self._result_hosts]

    def _host(self, array):
        """A tensor outside the engine, in numpy's order of axes, and a view of its memory."""
        mnn = self._mnn
        kind = {"float": mnn.Halide_Type_Float, "int": mnn.Halide_Type_Int, "uint8": mnn.Halide_Type_Uint8}
        host = mnn.Tensor(array.shape, kind[mnn_type(array.dtype)], array, mnn.Tensor_DimensionType_Caffe)
        return host, host.getNumpyData()


def _existing(path, what):
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{short(path)} does not exist; expected an {what}. Make it first, or check the path.")
    return path


def mnn_type(dtype):
    """MNN computes in float32 and int32 (and stores uint8): the name of the type that takes this numpy dtype."""
    return {"f": "float", "u": "uint8" if dtype == np.uint8 else "int"}.get(np.dtype(dtype).kind, "int")


def _for_mnn(array):
    """The array in the dtype that MNN stores it in. Raises ValueError when a 64-bit integer does not fit into 32."""
    if array.dtype is FLOAT32:
        return array
    target = {"float": np.float32, "uint8": np.uint8, "int": np.int32}[mnn_type(array.dtype)]
    narrow = array.astype(target, copy=False)
    if array.dtype.kind in "iu" and not np.array_equal(narrow, array):
        raise ValueError(f"MNN computes with 32-bit integers; found {array[narrow != array][0]}.")
    return narrow


def read_signature(path):
    """Inputs and outputs of an .mnn file, as two lists of TensorSpec.

    Files that `convert_onnx` wrote carry the ONNX model's own names, shapes and dtypes. For others MNN tells the
    names and the inputs' shapes; a leading 1 then counts as a dynamic batch, since MNN writes 1 for "any batch" too.
    Raises ValueError when MNN cannot load the file.
    """
    with quietly():
        import MNN.expr
        import MNN.nn

        try:
            info = MNN.nn.load_module_from_file(str(path), [], [], runtime_manager=runtime_manager(1)).get_info()
        except Exception:
            info = None
    if info is None:
        raise ValueError(
            f"{short(path)} is not an MNN model: MNN rejects its content ({path.stat().st_size:,} bytes found). "
            "Convert the ONNX file again (notebook 05)."
        )
    signature = _from_label(info["bizCode"])
    if signature:
        return signature
    inputs = []
    for name, variable in zip(info["inputNames"], info["inputs"], strict=True):
        shape = tuple(side if side > 0 else None for side in variable.shape)
        shape = ("batch", *shape[1:]) if shape[:1] == (1,) else shape
        inputs.append(TensorSpec(name, shape, np.dtype("int32" if variable.dtype == MNN.expr.int else "float32")))
    return inputs, [TensorSpec(name, None, None) for name in info["outputNames"]]


def _from_label(label):
    try:
        found = json.loads(label)
        return [
            [TensorSpec(name, None if t["shape"] is None else tuple(t["shape"]), np.dtype(t["dtype"]))
             for name, t in found[side].items()]
            for side in ("inputs", "outputs")
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # somebody else's label
