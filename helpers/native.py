"""Native code at arm's length: run it in a child process, so that a crash is a Python exception with a log.

`call("package.module:function", …)` runs one importable function, `run_snippet(source)` a few lines of Python, and
`quietly()` keeps what C code prints in this process out of the learner's cell.
"""

import ctypes
import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .paths import ROOT, short, write_text


class NativeError(RuntimeError):
    """A child process crashed, failed or ran out of time.

    returncode: its exit code, negative for a signal, None after a time-out; log: all it printed; seconds: its life.
    """

    def __init__(self, message, returncode=None, log="", seconds=0.0):
        super().__init__(message)
        self.returncode, self.log, self.seconds = returncode, log, seconds


class ToolError(RuntimeError):
    """A tool of MNN did not produce the file that was asked for. `log` holds all it printed."""

    def __init__(self, message, log=""):
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class Finished:
    """What a child process left behind: exit code (negative: killed by that signal), everything it printed, seconds."""

    returncode: int
    log: str
    seconds: float

    @property
    def ending(self):
        """How it ended, in words: "exit code 0", "killed by SIGSEGV (touched memory that is not its own)"."""
        if self.returncode >= 0:
            # Windows reports a native crash as an exit code: 0xC0000005 is an access violation.
            return f"exit code {self.returncode:#x}" if self.returncode > 255 else f"exit code {self.returncode}"
        meaning = {"SIGSEGV": " (touched memory that is not its own)", "SIGABRT": " (gave up by itself)"}
        name = signal.Signals(-self.returncode).name
        return f"killed by {name}{meaning.get(name, '')}"

    def __str__(self):
        return f"{self.ending}\n{self.log.strip()}".strip()


def last_lines(log, count=5):
    """The last `count` lines of a log that say something."""
    return "\n".join([line for line in log.splitlines() if line.strip()][-count:])


def run(arguments, *, timeout=300, log_path=None, cwd=None):
    """Run a command to its end, whatever that is, and return `Finished`.

    arguments: list of str; timeout in seconds; log_path: where stdout and stderr are also kept. The child sees this
    project's `helpers`. Raises NativeError when the time is up; the child and its own children are then killed.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [str(argument) for argument in arguments], stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env=child_environment(), cwd=cwd, start_new_session=os.name == "posix",
        )  # fmt: skip
        try:
            child.wait(timeout)
        except BaseException as error:  # also when the learner presses Stop: no child may outlive the cell
            _kill(child)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        seconds = time.perf_counter() - start
        output.seek(0)
        log = output.read().decode("utf-8", "replace")
    if log_path is not None:
        write_text(log_path, log)
    if seconds >= timeout and child.returncode != 0:
        raise NativeError(
            f"The child process was stopped after {timeout:g} s without a result. "
            f"Its last words:\n{last_lines(log) or '(none)'}",
            None, log, seconds,
        )  # fmt: skip
    return Finished(child.returncode, log, seconds)


def child_environment():
    """Environment variables for a child process of this Python: it sees this project's `helpers` and speaks UTF-8."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}


def _kill(child):
    if os.name == "posix":
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()


def run_snippet(source, *arguments, timeout=60):
    """Run Python source in a child process and return `Finished`: for code that may crash, and is meant to be seen.

    `arguments` arrive in its sys.argv[1:]. A crash or an exception is a result here, not an error.
    """
    return run([sys.executable, "-c", source, *arguments], timeout=timeout)


def call(target, *arguments, timeout=300, log_path=None, cwd=None):
    """Run the function "package.module:function" in a child process; return (its result, all that it printed).

    Arguments and result travel as pickles. What the function raises is raised here; a crash or a time-out is a
    NativeError that names the signal and quotes the last lines of the log.
    """
    with tempfile.TemporaryDirectory(prefix="mnn-course-") as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(pickle.dumps((target, arguments)))
        finished = run(
            [sys.executable, "-m", "helpers.native", request, answer], timeout=timeout, log_path=log_path, cwd=cwd
        )
        if finished.returncode == 0 and answer.exists():
            result, error = pickle.loads(answer.read_bytes())
            if error is not None:
                raise error
            return result, finished.log
    where = f"\nThe whole log: {short(log_path)}" if log_path else ""
    raise NativeError(
        f"{target} ended without a result: {finished.ending}. "
        f"Its last words:\n{last_lines(finished.log) or '(none)'}{where}",
        finished.returncode, finished.log, finished.seconds,
    )  # fmt: skip


def _serve(request, answer):
    target, arguments = pickle.loads(Path(request).read_bytes())
    module, name = target.split(":")
    try:
        result = getattr(importlib.import_module(module), name)(*arguments), None
    except Exception as error:
        error.add_note(f"(raised in a child process by {target})")
        result = None, error
    Path(answer).write_bytes(pickle.dumps(result))


@contextmanager
def quietly():
    """Silence what native code prints straight to this process's stdout and stderr inside the block."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _flush_c()
    saved = [os.dup(fd) for fd in (1, 2)]
    try:
        with open(os.devnull, "wb") as sink:
            for fd in (1, 2):
                os.dup2(sink.fileno(), fd)
        yield
    finally:
        _flush_c()
        for fd, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, fd)
            os.close(copy)


def _flush_c():
    """printf() buffers; what it still holds must go where fd 1 points now, not where it will point later."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
