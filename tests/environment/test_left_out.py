"""test says what it left out, and why, and hands on pytest's verdict."""

import subprocess
import sys

import pytest

from helpers.cli import bootstrap
from helpers.paths import ROOT

TESTS = """
import pytest

def test_runs(): pass

@pytest.mark.notebooks
def test_notebook(): pass

@pytest.mark.browser
@pytest.mark.skipif(True, reason="there is no Chromium")
def test_page(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_other(n):
    pytest.skip("there is no index")
"""


@pytest.fixture
def course(tmp_path):
    """A project with four kinds of tests, and this project's helpers."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_some.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return tmp_path


def launch(course, *rest, fast=False):
    program = (
        "import sys, pathlib, types; from helpers import paths; from helpers.cli import test; "
        "paths.ROOT = pathlib.Path(sys.argv[1]); "
        f"sys.exit(test.main(types.SimpleNamespace(fast={fast}), sys.argv[2:]))"
    )
    # Without the installed plugins, nbval above all, pytest starts in a fraction of the time.
    environment = {**bootstrap.child_environment(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", program, str(course), *rest]
    return subprocess.run(command, cwd=course.parent, env=environment, capture_output=True, text=True)


def test_everything_runs_and_what_was_skipped_is_listed_with_its_reason(course):
    result = launch(course)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 test: there is no Chromium\n2 tests: there is no index\n" in result.stdout
    assert "2 passed, 3 skipped" in result.stdout.splitlines()[-1]


def test_fast_leaves_out_notebooks_and_browser_and_says_so(course):
    result = launch(course, fast=True)
    assert result.returncode == 0
    assert "1 test: marked browser\n1 test: marked notebooks\n2 tests: there is no index\n" in result.stdout
    assert "1 passed, 2 skipped, 2 deselected" in result.stdout.splitlines()[-1]


def test_further_arguments_reach_pytest(course):
    result = launch(course, "-k", "runs")
    assert "4 tests: not selected on the command line\n" in result.stdout or "marked" in result.stdout
    assert "1 passed, 4 deselected" in result.stdout.splitlines()[-1]


def test_failure_is_the_exit_code(course):
    (course / "tests/test_bad.py").write_text("def test_bad(): assert False\n")
    assert launch(course).returncode == 1


def test_marker_that_is_not_declared_is_an_error(course):
    (course / "tests/test_bad.py").write_text("import pytest\n@pytest.mark.notebook\ndef test_bad(): pass\n")
    assert launch(course).returncode != 0


def test_every_file_with_tests_is_collected():
    # pytest passes folders by that it takes for somebody else's: one named build, for one.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    collected = {line.split("::")[0] for line in said.splitlines() if "::" in line}
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")}
    assert there == collected
