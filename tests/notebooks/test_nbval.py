"""Every notebook as committed: alone, in a fresh copy, artifacts/ empty, network cut, outputs compared strictly."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import support
import tiny

from helpers.paths import NOTEBOOKS, ROOT

pytestmark = pytest.mark.notebooks
ALL = sorted(path.name for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
INSTALLED = Path(sysconfig.get_path("purelib"), "left_by_a_test.txt")


def test_there_are_notebooks():
    assert ALL


@pytest.mark.parametrize("name", ALL)
def test_the_notebook_prints_what_is_committed(name, variables):
    faults = support.nbval_faults(ROOT, name, variables)
    assert not faults, "\n".join(faults)


# --- do these guards bite? Each is tried on a tiny notebook that breaks what it guards. --------------------


def test_a_notebook_that_keeps_the_rules_has_no_faults(tmp_path):
    assert support.nbval_faults(tiny.project(tmp_path), "98_tiny.ipynb") == []


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """Faults of a notebook that computes nothing, skips a cell, and has an altered and a never executed one."""
    cells = tiny.cells()
    cells["step"] = tiny.code("from helpers.checks import check\n\nprint(6 * 7)", "43\n")
    cells["figure"].metadata["tags"] = ["nbval-skip"]
    nb = tiny.notebook(cells)
    cells["98.1"].execution_count, cells["98.1"].outputs = None, []
    return support.nbval_faults(tiny.project(tmp_path_factory.mktemp("idle"), nb), "98_tiny.ipynb")


def test_an_altered_output_fails_and_both_are_shown(idle):
    fault = next(fault for fault in idle if fault.startswith("Cell 0 failed: "))
    assert "42" in fault and "43" in fault


def test_a_skipped_cell_fails(idle):
    assert any(fault.startswith("Cell 1 was skipped: ") for fault in idle)
    assert "3 cells passed, the notebook has 5." in idle


def test_a_cell_without_execution_count_fails(idle):
    assert "Cell 2 was never executed by its author, so nothing compares it." in idle


def test_a_notebook_that_ran_in_no_time_fails(idle):
    assert any(fault.startswith("It ran in about 0 s (0.") for fault in idle)


@pytest.fixture(scope="module")
def rude(tmp_path_factory):
    """Faults of a notebook that swallows every error of what it should not do."""
    cells = tiny.cells()
    cells["before"].source = cells["before"].source.replace("about 2 s", "about 900 s")
    cells["step"].source = (
        tiny.STEP
        + '''
import pathlib, socket, subprocess, sys, sysconfig

child = """
import socket
try:
    socket.create_connection(("198.51.100.7", 443), 1)
except OSError:
    pass
"""
try:
    socket.socket().connect(("192.0.2.1", 80))
except OSError:
    pass
try:
    socket.getaddrinfo("example.invalid", 80)
except OSError:
    pass
subprocess.run([sys.executable, "-c", child])
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(("localhost", own.getsockname()[1])).close()
socket.gethostbyname(socket.gethostname())
pathlib.Path("../helpers/new.py").touch()
pathlib.Path("98_tiny.html").touch()
pathlib.Path("../artifacts/html").mkdir(parents=True)
pathlib.Path(sysconfig.get_path("purelib"), "left_by_a_test.txt").touch()
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)'''
    )
    project = tiny.project(tmp_path_factory.mktemp("rude"), tiny.notebook(cells))
    try:
        return support.nbval_faults(project, "98_tiny.ipynb")
    finally:
        INSTALLED.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("192.0.2.1", id="by address"),
        pytest.param("example.invalid", id="by name"),
        pytest.param("198.51.100.7", id="from a child process"),
    ],
)
def test_an_attempt_to_reach_another_machine_fails_with_its_name(rude, host):
    assert f"Somebody tried to reach {host}; the course works without the network." in rude


def test_loopback_and_the_machines_own_name_are_no_attempt(rude):
    assert sum("tried to reach" in fault for fault in rude) == 3


def test_a_process_left_running_fails_and_is_ended(rude):
    (fault,) = [fault for fault in rude if fault.startswith("A process was left running: ")]
    assert "time.sleep(300)" in fault


def test_writing_outside_of_artifacts_fails(rude):
    for name in ("helpers/new.py", "notebooks/98_tiny.html"):
        assert f"{name} was written; notebooks write to artifacts/ only." in rude
    assert "artifacts/html was written; that is for `run` alone." in rude


def test_a_change_to_the_installed_packages_fails(rude):
    expected = f"{INSTALLED} was installed, changed or removed; a notebook leaves the environment as it is."
    assert expected in rude


def test_a_stated_time_far_from_the_measured_one_fails(rude):
    assert any(fault.endswith("states about 900 s.") for fault in rude)


def test_what_only_another_notebook_makes_is_not_there(tmp_path):
    cells = tiny.cells()
    cells["step"].source = tiny.STEP + "\nopen('../artifacts/other.txt').close()"
    project = tiny.project(tmp_path, tiny.notebook(cells))
    (project / "artifacts").mkdir()
    (project / "artifacts" / "other.txt").touch()
    faults = support.nbval_faults(project, "98_tiny.ipynb")
    assert any("FileNotFoundError" in fault and "other.txt" in fault for fault in faults)


def test_helpers_from_elsewhere_are_told_from_the_copys_own(tmp_path):
    copy = tiny.project(tmp_path / "copy")
    other = tiny.project(tmp_path / "other")
    run = support.guarded([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(other)!r}); import helpers"],
                          copy, timeout=30)  # fmt: skip
    (fault,) = support.common_faults(run, copy, support.contents(copy))
    assert str(other) in fault


def test_a_command_that_does_not_end_is_killed(tmp_path):
    copy = tiny.project(tmp_path / "copy")
    run = support.guarded([sys.executable, "-c", "import time; time.sleep(300)"], copy, timeout=1)
    assert run.returncode is None


def test_what_the_hook_does_not_see_reaches_nothing_and_is_named_all_the_same(tmp_path):
    if not support.network_cut():
        pytest.skip("no network namespace on this machine")
    attempts = """
import socket
for host in ("192.0.2.1", "example.invalid"):
    try:
        socket.create_connection((host, 80), 5)
        print("connected to", host)
    except OSError:
        pass
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname()).close()
"""
    command = [sys.executable, "-I", "-c", attempts]  # -I: without PYTHONPATH, so without the hook
    run = support.guarded(command, tiny.project(tmp_path / "copy"), timeout=60)
    assert (run.returncode, run.output) == (0, "")
    assert {"192.0.2.1", "example.invalid"} <= set(run.hosts)


def test_on_a_linux_ci_machine_an_uncut_network_is_an_error(monkeypatch):
    def refused(*arguments, **options):
        raise FileNotFoundError("unshare")

    monkeypatch.setattr(support.sys, "platform", "linux")
    monkeypatch.setattr(support.subprocess, "run", refused)
    monkeypatch.delenv("CI", raising=False)
    assert support.network_cut.__wrapped__() == ()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(RuntimeError, match="unshare"):
        support.network_cut.__wrapped__()


def names_in(copy):
    return {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}


def test_a_copy_without_git_has_all_but_what_was_made(tmp_path):
    for name in ("a.py", "data/b.gz", "artifacts/c.txt", ".venv/d.py", "helpers/__pycache__/e.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with support.fresh_copy(tmp_path) as copy:
        assert names_in(copy) == {"a.py", "data/b.gz"}
    assert not copy.exists()


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_copy_with_git_has_what_git_would_keep(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("kept.py", "gone.py", "ü new.py", "ignored.txt", "artifacts/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    subprocess.run(["git", "add", "kept.py", "gone.py"], cwd=tmp_path, check=True)
    (tmp_path / "gone.py").unlink()
    with support.fresh_copy(tmp_path) as copy:
        assert names_in(copy) == {".gitignore", "kept.py", "ü new.py"}
