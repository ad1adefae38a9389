"""`doctor`: what is in order and what is not, each with its remedy. Standard library only, and it changes nothing.

It looks at the environment that the other commands would use, from outside, so it also runs where that one is broken.
"""

import ctypes
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import cpu
from helpers.cli import bootstrap

ROOT = Path(__file__).resolve().parents[2]
FINISH = "Run: python3 -m helpers lab, which makes it or finishes it"
REINSTALL = "Delete the folder .venv and run: python3 -m helpers lab"
INSTALL = "Run in this environment: python -m pip install -r requirements.txt"
RESTORE = "Bring it back with: git checkout -- data"
# For each import its own process: one that crashes must not take the other's verdict with it.
IMPORTS = ("torch", "onnx", "onnxruntime", "MNN", "_tools", "helpers")


def main(options, _rest, root=ROOT):
    """Print the report; returns 0 when nothing is wrong, else 1."""
    checks = list(examine(root))
    wrong = [check for check in checks if not check["ok"]]
    if options.json:
        print(json.dumps({"ok": not wrong, "checks": checks}, indent=2))
        return 1 if wrong else 0
    for check in checks:
        print(f"{'ok   ' if check['ok'] else 'WRONG'} {check['name']}: {check['found']}")
        if not check["ok"]:
            print(f"      -> {check['remedy']}")
    print(f"\n{len(wrong)} of {len(checks)} checks found something wrong." if wrong else "\nEverything is in order.")
    return 1 if wrong else 0


def examine(root):
    """Yields {"name", "ok", "found", "remedy"} for each thing looked at; what is only worth knowing is always ok."""
    python, kind, packages = environment(root)
    yield check_python(needed=python is None)
    yield result(
        "environment",
        python is not None,
        f"{kind}, {python}" if python else kind,
        FINISH,
    )
    venv = root / ".venv"
    remedy = FINISH if bootstrap.incomplete(venv) else REINSTALL if venv.exists() else INSTALL
    if packages:
        yield from check_pins(root, packages, remedy)
    if python:
        yield from check_imports(python, root, remedy)
    yield from check_machine(root)
    yield from check_data(root)
    yield check_artifacts(root)
    yield check_loopback()
    if python:
        yield kernelspecs()


def result(name, ok, found, remedy=""):
    return {"name": name, "ok": bool(ok), "found": str(found), "remedy": "" if ok else remedy}


# --- Python and packages -------------------------------------------------------------------------------


def environment(root):
    """(Python, what it lives in, {package: version}) of the environment that the commands use; Python None: no such.

    The choice is bootstrap.ensure()'s: the active environment when it has all pins, else .venv. An active environment
    that lacks some is looked at when there is no .venv.
    """
    kind, here = bootstrap.environment_kind(), bootstrap.installed()
    venv, python = root / ".venv", bootstrap.venv_python(root)
    inside = Path(sys.prefix) == venv
    here_it_is = inside or not bootstrap.unmet(pins_of(root), here) or not venv.exists()
    if kind and here_it_is and not bootstrap.incomplete(sys.prefix):
        return sys.executable, f"{kind} {sys.prefix}", here
    folders = [str(folder) for pattern in SITE_PACKAGES for folder in venv.glob(pattern)]
    packages = bootstrap.installed(folders) if folders else {}
    if not venv.exists():
        return None, "there is none yet", packages
    if bootstrap.incomplete(venv):
        return None, "the installation of .venv was interrupted", packages
    if not python.exists():
        return None, ".venv has no Python (was the one it was made from removed?)", packages
    if not bootstrap.is_ready(root):
        return None, ".venv was made for other pins, another place or another Python", packages
    return str(python), "the course's own .venv", packages


SITE_PACKAGES = ("lib/python*/site-packages", "Lib/site-packages")


def pins_of(root):
    try:
        return bootstrap.read_pins(root)
    except (OSError, ValueError):
        return {}


def check_python(needed):
    """The running Python; `needed` says that the environment is still to be made from it."""
    found = f"{platform.python_version()}, {sys.executable}"
    try:
        bootstrap.check_python()
    except bootstrap.CommandError as error:
        return result("Python", not needed, found, str(error))
    return result("Python", True, found)


def check_pins(root, packages, remedy):
    pins = pins_of(root)
    if not pins:
        yield result("requirements.txt", False, "missing or unreadable", "Run: git checkout -- requirements.txt")
    wrong = bootstrap.unmet(pins, packages)
    for name, version in pins.items():
        has = version if name not in wrong else wrong[name][1]
        found = has if name not in wrong else f"{has or 'not installed'}, expected {version}"
        yield result(f"package {name}", name not in wrong, found, remedy)


def check_imports(python, root, remedy, modules=IMPORTS):
    for module in modules:
        try:
            child = subprocess.run(
                [python, "-c", f"import {module}"],
                cwd=str(root),
                env=bootstrap.child_environment(root),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=120,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield result(f"import {module}", False, error, remedy)
            continue
        lines = child.stdout.decode("utf-8", "replace").strip().splitlines()
        if child.returncode == 0:
            found = "works"
        elif child.returncode < 0:
            found = f"it crashed with signal {-child.returncode}"
        else:
            found = lines[-1] if lines else f"it ended with code {child.returncode}"
        yield result(f"import {module}", child.returncode == 0, found, remedy)


# --- the machine ---------------------------------------------------------------------------------------


def check_machine(root):
    yield result("system", True, platform.platform())
    processor = cpu.describe()
    has = [name for name, there in processor.features.items() if there]
    yield result("processor", True, f"{processor.model}; {', '.join(has) or 'no features known'}")
    yield result("processor cores", True, f"{cpu.usable_cores()} usable of {os.cpu_count()}")
    memory = memory_bytes()
    if memory:
        enough = memory >= 2e9
        yield result("memory", enough, f"{memory / 1e9:.1f} GB", "The notebooks need about 2 GB; close other programs")
    free = shutil.disk_usage(str(root)).free / 1e9
    remedy = "The notebooks write about 1.2 GB; free some space (python3 -m helpers clean drops caches)"
    yield result("disk", free >= 1.2, f"{free:.1f} GB free", remedy)
    if os.path.isdir("/dev/shm"):
        shared = shutil.disk_usage("/dev/shm").free / 1e6
        remedy = "In a container, start it with more shared memory (docker run --shm-size=256m)"
        yield result("shared memory", shared >= 32, f"{shared:.0f} MB free", remedy)


def memory_bytes():
    """Physical memory in bytes, None where the system does not tell."""
    if os.name == "nt":
        kilobytes = ctypes.c_ulonglong()
        if ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes)):
            return kilobytes.value * 1024
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


# --- the project's files -------------------------------------------------------------------------------


def check_data(root):
    """The compressed files of data/mnist and the pretrained weights against their checksums."""
    expected = {}
    listing = root / "data" / "mnist" / "checksums.sha256"
    try:
        for line in listing.read_text(encoding="utf-8").splitlines():
            digest, name = line.split(None, 1)
            if name.lstrip("*").endswith(".gz"):  # it lists the decompressed files too, which lie in artifacts/
                expected[listing.parent / name.lstrip("*")] = digest
    except (OSError, ValueError) as error:
        yield result("data/mnist/checksums.sha256", False, f"unreadable: {error}", RESTORE)
    manifest = root / "data" / "pretrained" / "manifest.json"
    try:
        for name, entry in json.loads(manifest.read_text(encoding="utf-8")).items():
            expected[manifest.parent / name] = entry["sha256"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        yield result("data/pretrained/manifest.json", False, f"unreadable: {error}", RESTORE)
    for path, digest in expected.items():
        found = _sha256(path)
        words = "as shipped" if found == digest else f"SHA-256 {found}, expected {digest}" if found else "missing"
        yield result(path.relative_to(root).as_posix(), found == digest, words, RESTORE)


def _sha256(path):
    digest = hashlib.sha256()
    try:
        with open(str(path), "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def check_artifacts(root):
    folder = bootstrap.artifacts(root)
    try:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=str(existing)):
            pass
    except OSError as error:
        remedy = f"Make {folder} a folder that you may write in (or point MNN_COURSE_ARTIFACTS to one)"
        return result("artifacts", False, f"can't write in {folder}: {error.strerror}", remedy)
    return result("artifacts", True, f"can write in {folder}")


def check_loopback():
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with socket.create_connection(server.getsockname(), timeout=2):
                pass
    except OSError as error:
        remedy = "Jupyter talks to its kernels over 127.0.0.1: allow that in the firewall, or bring the interface lo up"
        return result("loopback network", False, error, remedy)
    return result("loopback network", True, "127.0.0.1 accepts connections")


def kernelspecs():
    """The course uses its environment as kernel; another `python3` kernelspec on the machine is worth knowing."""
    home = Path.home()
    folders = [Path(entry) for entry in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if entry]
    folders.append(Path(os.environ.get("JUPYTER_DATA_DIR") or home / ".local/share/jupyter"))
    folders += [home / "Library/Jupyter", Path(os.environ.get("APPDATA", home)) / "jupyter"]
    shared = [str(folder) for folder in folders if (folder / "kernels" / "python3" / "kernel.json").exists()]
    found = "the course's own, this environment"
    if shared:
        found += f"; another one named python3 in {', '.join(shared)} is not used (a plain `jupyter lab` would use it)"
    return result("Jupyter kernel", True, found)
