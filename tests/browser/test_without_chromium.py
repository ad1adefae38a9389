"""Without Chromium the browser tests are left out, and say why; in CI they fail instead."""

import subprocess
import sys

from helpers.cli import bootstrap
from helpers.paths import ROOT


def run(tmp_path, **environment):
    """pytest on the JupyterLab tests where no program can be found."""
    kept = {name: value for name, value in bootstrap.child_environment(ROOT).items() if name != "CI"}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    command.append("tests/browser/test_in_jupyterlab.py")
    environment = {**kept, "PATH": str(tmp_path), **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_they_are_left_out_with_a_reason_on_a_learners_machine(tmp_path):
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Chromium and chromedriver not found, so nothing was tried in a browser." in result.stdout
    assert "2 skipped" in result.stdout


def test_they_fail_in_ci(tmp_path):
    result = run(tmp_path, CI="True")
    assert result.returncode == 1
    assert "In CI the browser tests must run." in result.stdout and "skipped" not in result.stdout
