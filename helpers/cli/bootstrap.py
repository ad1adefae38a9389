"""From a fresh clone to an environment in which the course runs. Standard library only: nothing else exists yet.

`ensure(root)` returns the Python to use. It is the running one when its environment (conda or virtual) has every pin of
requirements.txt; otherwise that of `.venv`, which is made on the first call, finished when an earlier call was
interrupted, and brought up to date when the pins have changed.

    .venv/mnn-course.json          written last: for which pins, folder and Python the installation is complete
    .venv/mnn-course.incomplete    there while something is being installed; a `.venv` with it is never used
    artifacts/logs/install.log     everything that venv and pip said
"""

import errno
import hashlib
import json
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from helpers.cli import CommandError
from helpers.cli.progress import Progress
from helpers.pip_log import reason

OLDEST, NEWEST = (3, 11), (3, 13)
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 3
AGAIN = "then run the same command again"


# --- which environment ---------------------------------------------------------------------------------


def read_pins(root):
    """{package: version} of the lines `package==version` in `root`/requirements.txt."""
    text = (root / "requirements.txt").read_text(encoding="utf-8")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return dict(re.split(r"\s*==\s*", line) for line in lines if line)


def normal(name):
    """One spelling for a package's name: MNN and mnn, jupyter_core and jupyter-core are the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(path=None):
    """{normal name: version} of what is installed, without the local part of a version (2.14.1+cpu is 2.14.1).

    path: list of site-packages folders; those of the running Python when None.
    """
    from importlib.metadata import distributions  # here, because Python 3.7 lacks it and must get as far as being told

    found = {}
    for package in distributions(**({"path": path} if path else {})):
        name = package.metadata["Name"]
        if name and package.version:  # a broken installation leaves folders without either
            found.setdefault(normal(name), package.version.split("+")[0])
    return found


def unmet(pins, found):
    """The pins that `found` does not satisfy: {package: (expected, found or None)}."""
    versions = {name: found.get(normal(name)) for name in pins}
    return {name: (pins[name], has) for name, has in versions.items() if has != pins[name]}


def environment_kind():
    """ "conda", "virtual environment" or None: what the running Python lives in."""
    conda = os.environ.get("CONDA_PREFIX")
    if conda and os.path.isdir(conda) and os.path.samefile(conda, sys.prefix):
        return "conda environment"
    return "virtual environment" if sys.prefix != sys.base_prefix else None


def venv_python(root):
    """Where `.venv` has its Python."""
    return root / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def incomplete(venv):
    return (Path(venv) / "mnn-course.incomplete").exists()


def is_ready(root):
    """Whether `.venv` is complete, for these pins, in this place, and the Python it was made from still there."""
    try:
        stamp = json.loads((root / ".venv" / "mnn-course.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp == _stamp(root) and venv_python(root).exists() and not incomplete(root / ".venv")


def _stamp(root):
    pins = "\n".join(sorted(f"{normal(name)}=={version}" for name, version in read_pins(root).items()))
    return {
        "pins": hashlib.sha256(pins.encode()).hexdigest(),
        "folder": str(root),  # scripts in .venv hold its absolute path: a moved .venv is a broken one
        "python": os.path.realpath(venv_python(root)),
    }


def ensure(root, say=None):
    """The path of a Python whose environment has all pins of `root`/requirements.txt; makes `.venv` if need be.

    say: called with each sentence for the learner (default: print to stderr). Raises CommandError when the environment
    can't be made: no network, disk full, Python too old, …
    """
    say = say or (lambda text: print(text, file=sys.stderr, flush=True))
    inside = Path(sys.prefix) == root / ".venv"
    kind = environment_kind()
    if kind and OLDEST <= sys.version_info[:2] <= NEWEST and not incomplete(sys.prefix):
        missing = unmet(read_pins(root), installed())
        if not missing:
            return sys.executable
        if not inside:
            name, (expected, has) = next(iter(missing.items()))
            say(
                f"The active {kind} {sys.prefix} does not have all pinned packages (for one, {name} {expected}: "
                f"{has or 'not installed'}); the course uses its own in .venv."
            )
    if inside or not is_ready(root):
        with _only_one(root, say):
            if inside or not is_ready(root):  # else another call has made it meanwhile
                _make(root, say)
    return str(venv_python(root))


def enter(python, root, arguments):
    """Go on as `python -m helpers arguments…`; returns an exit code on Windows, never returns elsewhere."""
    command = [str(python), "-m", "helpers", *arguments]
    environment = child_environment(root)
    if os.name != "nt":
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(command[0], command, environment)
    # Windows' exec starts a new process and ends this one, so the shell would not wait for it.
    child = subprocess.Popen(command, env=environment)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # Ctrl-C reaches the child too; it decides
            pass


def child_environment(root):
    """This process's environment, in which `import helpers` works and packages from the user's folder stay out."""
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}


# --- making it -----------------------------------------------------------------------------------------


def artifacts(root):
    return Path(os.environ.get("MNN_COURSE_ARTIFACTS", root / "artifacts"))


def check_python(version=None):
    """Raise CommandError unless this Python (or `version`, a tuple) is one that the pins support."""
    version = tuple(version or sys.version_info)[:2]
    if OLDEST <= version <= NEWEST:
        return
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    other = next(filter(_starts, names), None)
    raise CommandError(
        f"This Python is {'.'.join(map(str, version))}, too {'old' if version < OLDEST else 'new'}: the course needs "
        f"3.{OLDEST[1]} to 3.{NEWEST[1]}. "
        + (f"You have {other}: run {other} -m helpers …" if other else "Install one from python.org, " + AGAIN + ".")
    )


def _starts(python):
    try:
        return subprocess.call([python, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


@contextmanager
def _only_one(root, say):
    """Let one process at a time make the environment; the lock ends with the process, however it ends."""
    try:
        artifacts(root).mkdir(parents=True, exist_ok=True)
        file = open(artifacts(root) / "setup.lock", "a+b")  # noqa: SIM115 (closed by the `with` below)
    except OSError as error:
        raise CommandError(
            f"Can't write in {artifacts(root)} ({error.strerror}): make the project's folder writable, {AGAIN}."
        ) from None
    with file:
        waited = False
        while not _lock(file):
            if not waited:
                say("Another call is setting up the environment; waiting for it.")
                waited = True
            time.sleep(0.5)
        yield


def _lock(file):
    """Whether the lock on `file` could be had. Closing the file gives it back."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _make(root, say):
    """Make or finish `.venv`: environment, packages, project, stamp. Raises CommandError."""
    check_python()
    venv, log = root / ".venv", artifacts(root) / "logs" / "install.log"
    stamp, unfinished = venv / "mnn-course.json", venv / "mnn-course.incomplete"
    start = time.monotonic()
    try:
        if incomplete(venv):
            say("An earlier installation was interrupted: starting it anew (downloads are kept by pip).")
            shutil.rmtree(venv)
        elif stamp.exists() and not _belongs(stamp, root):
            say("The project was moved, or the Python of its .venv is gone: making .venv anew.")
            shutil.rmtree(venv)
        elif stamp.exists():
            say("The environment does not have what requirements.txt pins: bringing it up to date.")
        else:
            say(f"Setting up the course's environment in {venv}, once.")
        options, size = _torch_source(read_pins(root))
        if size:
            say(size[0])
            _check_disk(root, size[1])
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        venv.mkdir(exist_ok=True)
        unfinished.write_bytes(b"")
        stamp.unlink() if stamp.exists() else None
        if not venv_python(root).exists():
            base = getattr(sys, "_base_executable", None) or sys.executable  # ours may lie in the folder just removed
            _run([base, "-m", "venv", str(venv)], log, "Making .venv")
        pip = [str(venv_python(root)), "-m", "pip", "install", "--progress-bar", "off"]
        _run([*pip, *options, "-r", str(root / "requirements.txt")], log, "Installing")
        # Everything this needs was pinned and installed above, so nothing is fetched here.
        _run([*pip, "--no-deps", "--no-build-isolation", "-e", str(root)], log, "Installing the project itself")
        temporary = venv / "mnn-course.writing"
        temporary.write_text(json.dumps(_stamp(root), indent=2), encoding="utf-8")
        os.replace(temporary, stamp)
        unfinished.unlink()
    except OSError as error:
        raise CommandError(_why(error, log)) from None
    say(f"The environment is ready, after {time.monotonic() - start:.0f} s.")


def _belongs(stamp, root):
    try:
        old = json.loads(stamp.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return {**old, "pins": ""} == {**_stamp(root), "pins": ""} and venv_python(root).exists()


def _why(error, log):
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Setting up the environment failed: the disk is full; free some space, {AGAIN} (the log: {log})."
    return (
        f"Setting up the environment failed: {error.strerror or error} ({error.filename or 'no file'}); make the "
        f"project's folder writable and close what uses .venv (an activated one: deactivate), {AGAIN} (the log: {log})."
    )


def _torch_source(pins):
    """(pip options, (sentence, GB needed) or None): where PyTorch comes from on this system and how large that is."""
    if "torch" not in pins:
        return [], None
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return [], ("PyTorch: the package index's build; in all about 0.5 GB to download, 1.7 GB on disk.", 2.5)
    if _answers(f"{PYTORCH_CPU_INDEX}/torch/", PROBE_SECONDS):
        sentence = "PyTorch: the CPU build from PyTorch's own index; about 0.2 GB to download, in all 1.7 GB on disk."
        return ["--extra-index-url", PYTORCH_CPU_INDEX], (sentence, 2.5)
    sentence = (
        f"PyTorch: its CPU index did not answer within {PROBE_SECONDS} s, so the package index's build, which brings "
        "CUDA; about 3 GB to download, 6.5 GB on disk."
    )
    return [], (sentence, 7)


def _answers(url, seconds):
    """Whether a web address answers within `seconds`, name look-up included (a socket's time-out leaves that out)."""
    answer = []

    def ask():
        try:
            with urllib.request.urlopen(url, timeout=seconds) as page:
                answer.append(page.status == 200)
        except Exception:
            answer.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answer == [True]


def _check_disk(root, gigabytes):
    free = shutil.disk_usage(root).free / 1e9
    if free < gigabytes:
        raise CommandError(
            f"The disk is too full: setting up needs {gigabytes} GB in {root} and {free:.1f} GB are free; "
            f"free some space, {AGAIN}."
        )


def _run(command, log, title):
    """Run venv or pip with a line of progress; all it prints goes to the end of `log`. Raises CommandError."""
    environment = {**os.environ, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}
    environment.update(PYTHONIOENCODING="utf-8", PIP_REQUIRE_VIRTUALENV="0")
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_QUIET"):
        environment.pop(name, None)  # they would install elsewhere, or hide the progress
    venv = log  # only for pip: the folder whose packages are counted
    if "pip" in command:
        venv = Path(command[0]).parents[1]
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        try:
            output = _follow(child, file, title, venv)
        except BaseException:  # Ctrl-C, or a full disk while the log is written: pip must not go on alone
            child.terminate()
            child.wait()
            raise
    if child.returncode != 0:
        what, remedy = reason(output, child.returncode)
        raise CommandError(f"Setting up the environment failed: {what}; {remedy}, {AGAIN} (the log: {log}).")


def _follow(child, file, title, venv):
    """Copy the child's lines to `file` while showing how far it is; returns them all when it has ended."""
    lines, output, progress, start = queue.Queue(), [], Progress(), time.monotonic()

    def read():
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()  # so that the seconds go on while pip is silent
    names, doing, total, before = set(), "", 0, 0
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            line = ""
        if line is None:
            break
        if line:
            file.write(line)
            file.flush()
            output.append(line)
        collecting = re.match(r"(?:Collecting|Processing) (\S+)", line)
        downloading = re.match(r"\s*(?:Downloading|Using cached) (\S+) (\(.+\))", line)
        if collecting:
            names.add(collecting[1])
        elif downloading:
            wheel = downloading[1].rsplit("/", 1)[-1]
            doing = f", {'-'.join(wheel.split('-')[:2])} {downloading[2]}"
        elif line.startswith("Installing collected packages:"):
            total, before = line.count(",") + 1, _count(venv)
        seconds = f"{time.monotonic() - start:.0f} s"
        if total:
            progress.show(f"{title}: {min(_count(venv) - before, total)} of {total} packages installed, {seconds}")
        elif names:
            progress.show(f"{title}: {len(names)} packages found{doing}, {seconds}")
        else:
            progress.show(f"{title}, {seconds}")
    child.wait()
    progress.done()
    return "".join(output)


def _count(venv):
    """How many packages an environment holds."""
    pattern = "Lib/site-packages/*.dist-info" if os.name == "nt" else "lib/python*/site-packages/*.dist-info"
    return sum(1 for _ in venv.glob(pattern))
