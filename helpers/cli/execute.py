"""Execute a notebook headless and watch its kernel: what `run` and `render` share.

The kernel is this interpreter (see kernel.use_this_python) and its working directory the notebook's folder.
"""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from helpers import paths
from helpers.cli.progress import Progress, bar

CELL_SECONDS = 900
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
VERDICT = re.compile(r"^(\d\d\.\d+) (correct|not yet|not quite)\b", re.MULTILINE)


@dataclass
class Execution:
    """What became of one notebook.

    path: its file; nb: with the new outputs, as far as it got; seconds: kernel's start included;
    peak: the kernel's largest resident memory in bytes; cells: code cells executed; solved, exercises: checks
    that said "correct", and all that said anything; error: None, or cell, source and exception as text.
    """

    path: object
    nb: object
    seconds: float
    peak: int
    cells: int
    solved: int
    exercises: int
    error: str | None


def execute(path, progress=None):
    """Run the notebook at `path` from clean outputs in a fresh kernel; returns an Execution, whatever a cell does.

    The file stays as it is. Besides a cell that raises without the tag `raises-exception`, these are errors too: a
    kernel that dies, a cell that takes longer than CELL_SECONDS, a code cell that was not executed, no code at all.
    """
    progress = progress or Progress(stream=sys.stdout)
    # Threads that wait shall sleep: on a busy machine, spinning ones take the time of those that work.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    nb = clean(nbformat.read(path, as_version=4))
    code = [cell for cell in nb.cells if cell.cell_type == "code" and cell.source.strip()]
    current, done, error = None, 0, None

    def starts(cell, cell_index):
        nonlocal current, done
        current = cell_index
        if cell.cell_type == "code":
            progress.show(f"{path.stem} {bar(done, len(code))} cell {done + 1} of {len(code)}")
            done += 1

    client = NotebookClient(
        nb,
        kernel_name="python3",
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(path.parent)}},
        store_widget_state=False,
        record_timing=False,
        coalesce_streams=True,
        skip_cells_with_tag="",  # no cell is ever skipped
        on_cell_start=starts,
    )
    # What the kernel and native code in it print past the notebook would run through the progress line.
    log = paths.ARTIFACTS / "logs" / f"kernel-{path.stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with _peak_memory(client) as peak, open(log, "wb") as words:
        try:
            client.execute(stdout=words, stderr=subprocess.STDOUT)
        except CellExecutionError as problem:
            error = f"{problem.ename}: {ANSI.sub('', problem.evalue)}"
        except CellTimeoutError:
            error = f"The cell took longer than {CELL_SECONDS} s."
        except AssertionError:
            if client.km is None:  # nbclient's way of saying that Ctrl-C reached it and it has ended the kernel
                raise KeyboardInterrupt from None
            raise
        except DeadKernelError:
            error = f"The kernel died while it ran this cell; its last words may be in {paths.short(log)}."
    seconds = time.monotonic() - start
    progress.done()
    error = _unexecuted(path, code) if error is None else _describe(path, nb, current, error)
    verdicts = dict(VERDICT.findall("\n".join(_texts(nb))))
    return Execution(
        path=path,
        nb=nb,
        seconds=seconds,
        peak=peak[0],
        cells=sum(cell.execution_count is not None for cell in code),
        solved=sum(verdict == "correct" for verdict in verdicts.values()),
        exercises=len(verdicts),
        error=error,
    )


def clean(nb):
    """Take outputs, counts and everything that an execution leaves in the metadata away from `nb`, and return it."""
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata.pop("widgets", None)
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nb.metadata["language_info"] = {"name": "python"}
    for cell in nb.cells:
        for key in ("execution", "collapsed", "scrolled"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nb


def _unexecuted(path, code):
    """The guard against a notebook that is green because nothing happened."""
    if not code:
        return f"{paths.short(path)}: nothing was executed, because it has no code."
    for cell in code:
        if cell.execution_count is None:
            return f"{paths.short(path)}: a cell was not executed:\n{_head(cell.source)}"
    return None


def _describe(path, nb, index, error):
    if index is None:
        return f"{paths.short(path)}: the kernel did not start.\n{error}"
    cell = nb.cells[index]
    count = sum(other.cell_type == "code" for other in nb.cells[: index + 1])
    where = f"{paths.short(path)}, cell {index + 1} of {len(nb.cells)} (code cell {count}):"
    return f"{where}\n{_head(cell.source)}\n{error}"


def _head(source, lines=6):
    head = source.strip().splitlines()
    return "\n".join("    " + line for line in head[:lines] + ["…"] * (len(head) > lines))


def _texts(nb):
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                yield output.text


@contextmanager
def _peak_memory(client):
    """Yields a list with one number: the largest resident memory of the client's kernel so far, in bytes.

    Sampled ten times a second, so a shorter peak is missed.
    """
    peak, over = [0], threading.Event()

    def watch():
        process = None
        while not over.wait(0.1):
            try:
                if process is None:
                    pid = getattr(getattr(client.km, "provisioner", None), "pid", None)
                    process = psutil.Process(pid) if pid else None
                if process is not None:
                    peak[0] = max(peak[0], process.memory_info().rss)
            except psutil.Error:  # it has ended
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
