"""The command line itself: help, what is refused before anything is installed, and what CI calls."""

import os
import re
import subprocess
import sys

import pytest
from tiny_project import ROOT, call, command

from helpers.__main__ import parse

COMMANDS = ("lab", "run", "test", "render", "bench", "clean", "doctor")


def test_help_names_every_command_and_installs_nothing(tiny):
    result = call(tiny, "--help")
    assert result.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^    {name} +\S", result.stdout, re.MULTILINE)
    assert not (tiny / ".venv").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(tiny, name):
    result = call(tiny, name, "--help")
    assert result.returncode == 0 and f"usage: python3 -m helpers {name}" in result.stdout
    assert not (tiny / ".venv").exists()


@pytest.mark.parametrize("name", ["run", "render"])
def test_unknown_notebook_is_refused_before_the_installation_naming_those_there_are(tiny, name):
    result = call(tiny, name, "01", "99")
    assert result.returncode == 1
    assert result.stderr.startswith("error: There is no notebook 99. These exist: 01_train.")
    assert not (tiny / ".venv").exists()


@pytest.mark.parametrize("arguments", [["dance"], [], ["run", "--fast"], ["doctor", "--", "x"], ["test", "-k", "x"]])
def test_what_no_command_understands_is_refused(tiny, arguments):
    result = call(tiny, *arguments)
    assert result.returncode == 2
    assert "usage:" in result.stderr and "Traceback" not in result.stderr
    assert not (tiny / ".venv").exists()


def test_options_for_jupyterlab_and_pytest_are_passed_on_in_order():
    assert parse(["lab", "--no-browser", "--port", "8899"])[1] == ["--no-browser", "--port", "8899"]
    options, rest = parse(["test", "--fast", "--", "-k", "parity", "--lf"])
    assert options.fast and rest == ["-k", "parity", "--lf"]


@pytest.mark.skipif(os.name == "nt", reason="a terminal's size and Ctrl-C work otherwise on Windows")
def test_progress_is_one_line_in_a_terminal(furnished):
    import pty

    master, slave = pty.openpty()
    argv, options = command(furnished, "run")
    options["stderr"] = slave
    child = subprocess.Popen(argv, **options)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    assert child.wait() == 0
    child.stdout.close()
    os.close(master)
    text = shown.decode().replace("\r\n", "\n")
    assert re.search(r"\rInstalling: 1 packages found, \d+ s", text) or re.search(r"of 1 packages installed", text)
    lines = [line.rsplit("\r", 1)[-1] for line in text.split("\n")]
    assert [line for line in lines if line.startswith("Installing")] == []  # each was wiped away by the next


@pytest.fixture(scope="module")
def script():
    return (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_ci_ends_by_calling_the_readmes_test_command(script):
    assert os.name == "nt" or os.access(ROOT / ".ci/run", os.X_OK)
    assert script.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in script
    assert script.splitlines()[-1] == "python3 -m helpers test"


@pytest.mark.skipif(os.name == "nt", reason="a bash script")
@pytest.mark.parametrize("has_packages", [True, False])
def test_ci_installs_only_the_system_packages_that_are_missing(tmp_path, has_packages):
    """The script itself, in a copy, with stand-ins for the programs that would change the machine."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_bytes((ROOT / ".ci/run").read_bytes())
    for name, does in {
        "apt-get": "echo apt-get $*",
        "dpkg-query": "echo installed" if has_packages else "exit 1",
        "id": "echo 0",
        "python3": 'echo "python3 $* in $PWD"; exit 7',
    }.items():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{does}\n")
        tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(["bash", str(tmp_path / ".ci/run")], env=environment, capture_output=True, text=True)
    assert result.returncode == 7, result.stderr
    assert result.stdout.splitlines()[-1] == f"python3 -m helpers test in {tmp_path}"
    assert ("apt-get install" in result.stdout) is not has_packages


def test_code_has_one_style():
    checked = ["helpers", "tests", "notebooks/solutions"]
    result = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", *checked], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
