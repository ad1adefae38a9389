"""A place to run build_mnn.sh in: an environment to install into, artifacts of its own, a PATH that can lack things."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "build_mnn.sh"
STANDIN = Path(__file__).with_name("standin")

# All that the script and the tools it calls may find; the rest of this machine is out of sight.
COMMANDS = (
    "bash", "sh", "env", "cat", "cp", "mv", "rm", "mkdir", "ls", "ln", "dirname", "basename", "find", "touch",
    "chmod", "head", "tail", "cut", "wc", "tr", "sort", "sed", "awk", "grep", "cksum", "df", "date", "ps",
    "sleep", "uname", "getconf", "tar", "gzip", "git", "cmake", "make", "cc", "gcc", "c++", "g++", "ld", "ar",
    "ranlib", "as", "install",
)  # fmt: skip


class Workbench:
    """`run(*options)` runs the script; `path` (a folder) is its whole PATH; `source` is a copy of the stand-in."""

    def __init__(self, folder):
        self.folder = folder / "a folder with spaces"
        self.artifacts = self.folder / "artifacts"
        self.build = self.artifacts / "mnn-build"
        self.tree = self.build / "source" / "pymnn_build"
        self.log = self.artifacts / "logs" / "build_mnn.log"
        self.source = self.folder / "source"
        self.folder.mkdir()
        self.path = folder / "bin"  # without spaces: make itself cannot be called from a folder with any
        self.path.mkdir()
        for name in COMMANDS:
            if found := shutil.which(name):
                (self.path / name).symlink_to(found)
        shutil.copytree(STANDIN, self.source)
        self.environment = self.folder / "env"
        self.python = self.environment / "bin" / "python"
        self.packages = make_environment(self.environment)

    def lack(self, *names):
        for name in names:
            (self.path / name).unlink()

    def fake(self, name, script):
        """Put a shell script in the place of a command."""
        path = self.path / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def variables(self, **more):
        return {"PATH": str(self.path), "HOME": str(self.folder), "MNN_COURSE_ARTIFACTS": str(self.artifacts), **more}

    def start(self, *options, **more):
        command = [SCRIPT, "--python", self.python, "--jobs", "2", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(
            list(map(str, command)), env=self.variables(**more), cwd=self.folder, text=True, encoding="utf-8", **pipes
        )

    def run(self, *options, **more):
        """Run the script to its end; return its exit code and all that it printed."""
        child = self.start(*options, **more)
        try:
            output, _ = child.communicate(timeout=300)
        finally:
            child.kill()
        return child.returncode, output

    def ask(self, code):
        """What the scratch environment's Python prints for `code`."""
        command = [self.python, "-c", code]
        return subprocess.run(command, env=self.variables(), capture_output=True, text=True, check=True).stdout.strip()

    def install_earlier(self):
        """Install an MNN 0.9 that knows no more than its version: what must survive a failed build."""
        package, info = self.packages / "MNN", self.packages / "mnn-0.9.dist-info"
        package.mkdir()
        info.mkdir()
        (package / "__init__.py").write_text("def version():\n    return '0.9'\n")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: MNN\nVersion: 0.9\n")
        (info / "INSTALLER").write_text("pip\n")
        names = ["MNN/__init__.py", *(f"{info.name}/{name}" for name in ("METADATA", "INSTALLER", "RECORD"))]
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
        return self.state()

    def state(self):
        """What of MNN is installed: {file: content}."""
        files = [*self.packages.glob("MNN/**/*.py"), *self.packages.glob("_*.py"), *self.packages.glob("mnn-*/*")]
        return {file.relative_to(self.packages): file.read_bytes() for file in files if file.is_file()}


def make_environment(folder):
    """A virtual environment that sees the course's packages (pip, numpy, torch, …) but is empty itself.

    A line in a .pth file does it, since an environment cannot be layered on another one otherwise. What is installed
    into it comes first on its path: the stand-in hides the course's own MNN, which stays as it is.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "course.pth").write_text(
        "".join(f"{path}\n" for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    )
    return packages


def interrupt(child, with_signal=signal.SIGINT):
    """Send the signal to the script alone, not to what it started, and return what it said and its exit code."""
    os.kill(child.pid, with_signal)
    output, _ = child.communicate(timeout=60)
    return child.returncode, output
