"""A tiny copy of the project that is installed in seconds and without the network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from wheels import write_wheel

ROOT = Path(__file__).resolve().parents[2]

# Stands in for setuptools, which the tiny project would have to download. TINY_SLEEP keeps it amid its work.
BACKEND = """
import os, sys, time
sys.path.insert(0, os.path.join(os.getcwd(), "tests"))
from wheels import write_wheel

def build_editable(folder, config_settings=None, metadata_directory=None):
    time.sleep(float(os.environ.get("TINY_SLEEP", "0")))
    return write_wheel(folder, "mnn_course", "1.0", {"mnn_course.pth": os.getcwd()})
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "tiny_backend"
backend-path = ["."]
[project]
name = "mnn-course"
version = "1.0"
"""
# The command that the tiny project runs: says where it arrived.
RUN = """
import sys
from importlib.metadata import version

def main(options, rest):
    print("arrived in", sys.prefix, "with tinypin", version("tinypin"), "and mnn-course", version("mnn-course"))
    return 0
"""


def write_project(folder):
    """Lay the tiny project into `folder` (which must not exist) and return it."""
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "helpers/cli/run.py").write_text(RUN)
    (folder / "notebooks").mkdir()
    (folder / "notebooks/01_train.ipynb").write_text("{}")
    (folder / "tests").mkdir()
    shutil.copy(Path(__file__).with_name("wheels.py"), folder / "tests")
    (folder / "wheels").mkdir()
    for version in ("1.0", "2.0"):
        write_wheel(folder / "wheels", "tinypin", version, {"tinypin.py": ""})
    (folder / "tiny_backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "requirements.txt").write_text("# what the tiny project needs\ntinypin==1.0  # to have something\n")
    return folder


def bare_environment(folder, **more):
    """The environment variables of a user who has set nothing, with a home of their own; pip finds only our wheels."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "LANG") if name in os.environ}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": (folder / "wheels").as_uri(), "PIP_CONFIG_FILE": os.devnull}
    return {**kept, "HOME": str(home), "USERPROFILE": str(home), **pip, **more}


def command(project, *arguments, **more):
    """(arguments, options) for subprocess: `python -m helpers …` as a user without any environment types it."""
    base = getattr(sys, "_base_executable", sys.executable)
    options = {"cwd": project, "env": bare_environment(project, **more), "text": True, "encoding": "utf-8"}
    options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return [base, "-m", "helpers", *arguments], options


def call(project, *arguments, **more):
    argv, options = command(project, *arguments, **more)
    return subprocess.run(argv, timeout=120, **options)
