"""What only a fresh process tells: how long an engine takes to start, its memory, and how many threads it really has.

A process that has run other things proves little: its memory has had its peak, libraries are loaded, and MNN's threads,
one pool for the whole process, have been started by whoever came first. Each function here starts child processes
and returns numbers. The children load one engine, without the others.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from . import native

ENGINES = ("MNN", "ONNX Runtime", "PyTorch")


@dataclass(frozen=True)
class StartUp:
    """Seconds of a process's first steps (python: interpreter, numpy, helpers) and of a later call; peak in bytes."""

    python: float
    imports: float
    load: float
    first: float
    steady: float
    peak: int

    @property
    def until_answer(self):
        """Seconds from the start of the process to its first answer."""
        return self.python + self.imports + self.load + self.first


def start_up(engine, path, array):
    """Start a process that imports one engine, loads the model and answers; returns a `StartUp`.

    engine: one of ENGINES. path: .mnn, .onnx, or for PyTorch the course's .pt. array: the input.
    """
    figures, _ = native.call("helpers.fresh:_start_up", engine, Path(path), array, time.time())
    return StartUp(*figures)


def sweep(engine, path, arrays, threads, *, seconds=0.3):
    """Start a process with one engine and `threads` threads: (threads counted, [seconds per call for each array]).

    Counted are the threads that the system shows after the first call beyond those before loading, and the calling one.
    A call's time is the median over about `seconds`. PyTorch, which waits as OMP_WAIT_POLICY says, runs without it: as
    it does outside of this course's commands.
    """
    return native.call("helpers.fresh:_sweep", engine, Path(path), arrays, threads, seconds)[0]


def timing(engine, path, array, threads, *, seconds=0.5):
    """Start a process with one engine and `threads` threads and return the `bench.Timing` of its calls."""
    return native.call("helpers.fresh:_timing", engine, Path(path), array, threads, seconds)[0]


def memory_by_batch(engine, path, array, batches):
    """Start a process that answers ever larger batches: [bytes the process had at its peak, after each].

    array: one input, repeated to make a batch. batches: in ascending order.
    """
    return native.call("helpers.fresh:_memory_by_batch", engine, Path(path), array, batches)[0]


# --- in the child -------------------------------------------------------------------------------------------


def _start_up(engine, path, array, started):
    python = time.time() - started
    marks = [time.perf_counter()]
    model = _load(engine, path, 1, marks)
    model(array)
    marks.append(time.perf_counter())
    times = []
    for _ in range(100):
        start = time.perf_counter()
        model(array)
        times.append(time.perf_counter() - start)
    steps = [after - before for before, after in zip(marks, marks[1:], strict=False)]
    return python, *steps, sorted(times)[len(times) // 2], peak_bytes()


def _sweep(engine, path, arrays, threads, seconds):
    os.environ.pop("OMP_WAIT_POLICY", None)
    _imports(engine)
    before = _threads()
    model = _load(engine, path, threads)
    medians = []
    for array in arrays:
        model(array)
        times, end = [], time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            model(array)
            times.append(time.perf_counter() - start)
        medians.append(sorted(times)[len(times) // 2])
    return _threads() - before + 1, medians


def _timing(engine, path, array, threads, seconds):
    os.environ.pop("OMP_WAIT_POLICY", None)
    model = _load(engine, path, threads)
    from .bench import measure

    name = f"{engine}, {threads} thread{'s' * (threads > 1)}, batch {len(array)}"
    return measure(lambda: model(array), name=name, repeats=30, min_time=seconds)


def _memory_by_batch(engine, path, array, batches):
    import numpy as np

    model, peaks = _load(engine, path, 1), []
    for batch in batches:
        model(np.repeat(array, batch, axis=0))
        peaks.append(peak_bytes())
    return peaks


def _imports(engine):
    with native.quietly():
        if engine == "MNN":
            import MNN.expr
            import MNN.nn  # noqa: F401
        elif engine == "ONNX Runtime":
            import onnxruntime  # noqa: F401
        else:
            import torch  # noqa: F401


def _load(engine, path, threads, marks=None):
    """The model as a runner. marks: gets the times after the imports and after loading."""
    _imports(engine)
    if marks is not None:
        marks.append(time.perf_counter())
    from .runtime import MnnModule, OrtModel, TorchModel

    if engine == "MNN":
        model = MnnModule(path, threads=threads)
    elif engine == "ONNX Runtime":
        model = OrtModel(path, threads=threads)
    else:
        import torch

        from .model import load_weights

        torch.set_num_threads(threads)
        model = TorchModel(load_weights(path))
    if marks is not None:
        marks.append(time.perf_counter())
    return model


def _threads():
    import psutil

    return psutil.Process().num_threads()


def peak_bytes():
    """The most physical memory that this process has held so far."""
    try:  # not getrusage(): on Linux a child inherits the maximum of its parent
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return 1024 * int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0])
    except OSError:
        import psutil

        memory = psutil.Process().memory_info()
        return getattr(memory, "peak_wset", memory.rss)
