"""How the notebooks are tried: alone, in a fresh copy of the project, with nothing made yet and the network cut.

    with fresh_copy(ROOT) as copy:
        run = guarded([sys.executable, "-m", …], copy, timeout=60)

`nbval_faults()` and `exercise_faults()` do all of it for one notebook and return sentences; none means well.
"""

import functools
import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
import xml.etree.ElementTree
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import solutions

from helpers.cli import hygiene

HERE = Path(__file__).resolve().parent
LEFT_OUT = ("artifacts", ".git", ".venv", "__pycache__", ".ipynb_checkpoints", ".pytest_cache")


def read(path):
    return nbformat.v4.reads(path.read_text("utf-8"))


def compared_fault(path, recorded):
    """The sentence for a notebook that compares fewer cells than the file `recorded` says, or None."""
    numbers = json.loads(recorded.read_text("utf-8"))
    if path.stem not in numbers:
        return f"{path.stem} is not in {recorded.name}: run `python3 -m helpers render {path.name[:2]}`."
    now = hygiene.compared_cells(read(path))
    if now < numbers[path.stem]:
        was = numbers[path.stem]
        return f"{path.name} has {now} cells that nbval compares, recorded were {was}. Do not hide outputs."
    return None


# --- a fresh copy ------------------------------------------------------------------------------------------


def project_files(project):
    """Relative paths of what belongs to the project: tracked, or neither tracked nor ignored; else all of it."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listing, cwd=project, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        found = []  # no git, or no repository: a downloaded archive
    files = [Path(name) for name in found if name] or list(all_files(project))
    return [file for file in files if not set(LEFT_OUT) & set(file.parts) and (project / file).is_file()]


def all_files(project):
    for folder, folders, names in os.walk(project):
        folders[:] = [name for name in folders if name not in LEFT_OUT]  # os.walk does not enter what is removed
        yield from (Path(folder, name).relative_to(project) for name in names)


@contextmanager
def fresh_copy(project):
    """Yield a folder with a copy of the project and nothing that a notebook made; deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder).resolve() / "project"
        for file in project_files(project):
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project / file, copy / file)
        yield copy


def contents(copy):
    """{relative path: checksum} of everything in a copy that a notebook has no business to change."""
    return {
        file.relative_to(copy).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in copy.rglob("*")
        if file.is_file() and not set(LEFT_OUT) & set(file.relative_to(copy).parts)
    }


def installed():
    """{path: (bytes, time of change)} of every file of this Python's packages and commands, but for __pycache__."""
    folders = {*map(sysconfig.get_path, ("purelib", "platlib", "scripts")), site.getusersitepackages()}
    files = (os.path.join(place, name) for folder in folders for place, _, names in os.walk(folder)
             if not place.endswith("__pycache__") for name in names)  # fmt: skip
    return {file: (status.st_size, status.st_mtime_ns) for file in files if (status := os.lstat(file))}


# --- under guard -------------------------------------------------------------------------------------------


@functools.cache
def network_cut():
    """The words before a command that run it in a network namespace of its own, where only loopback exists.

    Empty where that can't be had (macOS, Windows, a restricted container): then only the attempts of Python code
    are seen, by guard/sitecustomize.py. On a CI machine with Linux it must be there: raises RuntimeError.
    """
    if sys.platform != "linux":
        return ()
    for options in (["--net"], ["--net", "--map-root-user"]):
        words = ("unshare", *options, sys.executable, str(HERE / "offline.py"))
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=30).returncode == 0:
                return words
        except (OSError, subprocess.TimeoutExpired):
            pass
    if os.environ.get("CI", "").lower() in ("1", "true"):
        raise RuntimeError("`unshare --net` does not work on this CI machine; the network can't be cut. Allow it.")
    return ()


@dataclass(frozen=True)
class Guarded:
    """What a command left behind that ran under guard."""

    returncode: int | None  # None: it did not end in time and was killed
    output: str  # stdout and stderr
    hosts: list  # other machines that somebody tried to reach
    helpers: list  # files of the `helpers` packages that were imported
    leftovers: list  # command lines of processes that outlived it


def guarded(command, copy, *, timeout, variables=()):
    """Run a command in a copy of the project: network cut, its own `helpers` first, nobody's Jupyter settings.

    variables: {name: value} of environment variables that it shall have besides, of the course's own the only ones.
    """
    scratch = copy.parent
    log, output, mark = scratch / "guard.jsonl", scratch / "output.txt", uuid.uuid4().hex
    log.unlink(missing_ok=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "JUPYTER_", "MNN_COURSE_")) and name != "MPLBACKEND"
    } | dict(variables)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE / "guard"), str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # OpenMP's threads sleep while they wait, as under `run`: on a busy machine, spinning ones cost minutes.
    environment |= {"COURSE_GUARD_LOG": str(log), "COURSE_RUN": mark, "OMP_WAIT_POLICY": "passive"}
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        environment[name] = str(scratch / name.lower())
    with output.open("wb") as sink:  # a file: a pipe would stay open as long as a left-over process lives
        process = subprocess.Popen(
            [*network_cut(), *map(str, command)], cwd=copy, env=environment,
            stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            returncode = process.wait(timeout)
        except subprocess.TimeoutExpired:
            returncode = None
        finally:
            leftovers = end_marked(mark, grace=3 if process.poll() is not None else 0)
            process.wait()
    seen = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    return Guarded(
        returncode=returncode,
        output=output.read_text("utf-8", "replace"),
        hosts=sorted({line["host"] for line in seen if "host" in line}),
        helpers=sorted({line["helpers"] for line in seen if "helpers" in line}),
        leftovers=leftovers,
    )


def end_marked(mark, *, grace):
    """Kill every process that carries our mark and does not end within `grace` seconds; returns their commands."""
    deadline = time.monotonic() + grace
    while (alive := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process, _ in alive:
        process.kill()
    return [command for _, command in alive]


def marked(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("COURSE_RUN") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, " ".join(process.cmdline())))
        except (psutil.Error, OSError):
            pass  # ended meanwhile, or not ours to look at
    return found


def common_faults(run, copy, before):
    """What no run of a notebook may do, whoever drives it."""
    for host in run.hosts:
        yield f"Somebody tried to reach {host}; the course works without the network."
    wanted = str(copy / "helpers" / "__init__.py")
    if run.helpers != [wanted]:
        yield f"The helpers came from {run.helpers}, expected the copy's own: {wanted}."
    for command in run.leftovers:
        yield f"A process was left running: {command}"
    after = contents(copy)
    for name in sorted(name for name in before | after if before.get(name) != after.get(name)):
        yield f"{name} was written; notebooks write to artifacts/ only."
    if (copy / "artifacts" / "html").exists():
        yield "artifacts/html was written; that is for `run` alone."


# --- as committed, under nbval -----------------------------------------------------------------------------


def nbval_faults(project, name, variables=()):
    """Run notebooks/<name> of a project under nbval, strictly; returns what is wrong, in sentences.

    variables: see guarded().
    """
    nb = read(project / "notebooks" / name)
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    stated = hygiene.stated_seconds(nb)
    with fresh_copy(project) as copy:
        before, packages = contents(copy), installed()
        settings, report = copy.parent / "pytest.ini", copy.parent / "report.xml"
        # Settings of our own: not the project's, whose markers and options are meant for other tests.
        settings.write_text("[pytest]\njunit_duration_report = call\n", "utf-8")
        run = guarded(
            [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider",
             "--noconftest", "-c", settings, "--rootdir", copy, "--color=no", "--junitxml", report,
             f"notebooks/{name}"],
            copy, timeout=120 + 5 * (stated or 60), variables=variables,
        )  # fmt: skip
        faults = [*judge_report(report, run, len(cells), stated), *common_faults(run, copy, before)]
    faults += [
        f"{file} was installed, changed or removed; a notebook leaves the environment as it is."
        for file in sorted({file for file, _ in packages.items() ^ installed().items()})
    ]
    faults += [
        f"Cell {number} was never executed by its author, so nothing compares it."
        for number, cell in enumerate(cells)
        if cell.execution_count is None
    ]
    return faults


def judge_report(report, run, cells, stated):
    """Faults in pytest's JUnit report of one notebook; `cells` are expected, `stated` seconds were promised."""
    if run.returncode is None:
        yield f"It did not end in time and was stopped.\n{run.output[-3000:]}"
        return
    if not report.exists():
        yield f"pytest wrote no report (exit code {run.returncode}).\n{run.output[-3000:]}"
        return
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    passed = 0
    for case in cases:
        outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
        passed += not outcomes
        for outcome in outcomes:
            word = {"failure": "failed", "error": "failed outside its code", "skipped": "was skipped"}[outcome.tag]
            yield f"{case.get('name')} {word}: {(outcome.text or outcome.get('message') or '')[:3000]}"
    if passed != cells:
        yield f"{passed} cells passed, the notebook has {cells}."
    if run.returncode != 0 and passed == cells:
        yield f"pytest ended with exit code {run.returncode}.\n{run.output[-3000:]}"
    seconds = sum(float(case.get("time")) for case in cases)
    if seconds < 0.5:
        yield f"It ran in about 0 s ({seconds:.2f} s): nothing was computed."
    if stated is None:
        yield "It does not state its time."
    elif passed == cells and not stated / 10 - 10 <= seconds <= 10 * stated:
        # A machine may be slow or busy today; ten times is no longer the machine. `render` is stricter with authors.
        yield f"It took {seconds:.1f} s and states about {stated} s."


# --- with the exercises tried ------------------------------------------------------------------------------


def exercise_faults(project, name, variables=()):
    """Run notebooks/<name> with its wrong answers and solutions put in; returns what is wrong, in sentences.

    variables: see guarded().
    """
    nb = read(project / "notebooks" / name)
    try:
        tried = solutions.inject(nb, solutions.read(project / "notebooks" / "solutions" / f"{Path(name).stem}.py"))
    except solutions.SolutionError as error:
        return [str(error)]
    with fresh_copy(project) as copy:
        (copy / "notebooks" / name).write_text(nbformat.v4.writes(tried), "utf-8")
        before = contents(copy)
        executed = copy.parent / "executed.ipynb"
        run = guarded(
            [sys.executable, HERE / "execute.py", f"notebooks/{name}", executed],
            copy, timeout=240 + 10 * (hygiene.stated_seconds(nb) or 60), variables=variables,
        )  # fmt: skip
        faults = list(common_faults(run, copy, before))
        if run.returncode is None or not executed.exists():
            return [*faults, f"It did not end well (exit code {run.returncode}).\n{run.output[-3000:]}"]
        if run.returncode != 0:
            faults.append(f"It stopped at an error.\n{run.output[-3000:]}")
        faults += solutions.judge(read(executed))
        if run.returncode == 0:
            faults += unsolved(copy / "artifacts" / "progress.json", solutions.exercise_ids(nb))
    return faults


def unsolved(file, ids):
    """Faults in the progress file after every solution was accepted."""
    marks = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return [f"Exercise {id} is {marks.get(id)!r} in {file.name}, expected 'solved'." for id in ids
            if marks.get(id) != "solved"]  # fmt: skip
