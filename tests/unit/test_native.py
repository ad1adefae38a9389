import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import native
from helpers.native import NativeError, call, quietly, run, run_snippet

posix = pytest.mark.skipif(os.name != "posix", reason="signals are a POSIX matter")


def crash():
    os.abort()


def fail(text):
    raise ValueError(text)


def double(array):
    print("doubling", flush=True)
    return array * 2


def hang():
    print("still here", flush=True)
    time.sleep(60)


HERE = __name__


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))


def test_a_result_comes_back_with_what_was_printed():
    result, log = call(f"{HERE}:double", np.arange(3))
    np.testing.assert_array_equal(result, [0, 2, 4])
    assert log.strip() == "doubling"


def test_an_exception_of_the_child_is_raised_here():
    with pytest.raises(ValueError, match="too long"):
        call(f"{HERE}:fail", "too long")


@posix
def test_a_crash_names_the_signal_and_keeps_the_log(tmp_path):
    with pytest.raises(NativeError, match="killed by SIGABRT") as caught:
        call(f"{HERE}:crash", log_path=tmp_path / "log.txt")
    assert caught.value.returncode == -6 and (tmp_path / "log.txt").exists()


def test_a_child_that_takes_too_long_is_stopped_and_quoted():
    start = time.perf_counter()
    with pytest.raises(NativeError, match=r"stopped after 3 s .*\nstill here") as caught:
        call(f"{HERE}:hang", timeout=3)
    assert caught.value.returncode is None and time.perf_counter() - start < 20


@posix
def test_grandchildren_die_with_a_child_that_took_too_long(tmp_path):
    pid_file = tmp_path / "pid"
    source = (
        "import subprocess, sys, time; "
        f"p = subprocess.Popen(['sleep', '60']); open({str(pid_file)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    with pytest.raises(NativeError):
        run([sys.executable, "-c", source], timeout=3)
    time.sleep(0.2)
    state = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@posix
def test_a_snippet_that_segfaults_is_a_result_not_an_error():
    finished = run_snippet("import ctypes; print('before', flush=True); ctypes.string_at(0)")
    assert finished.returncode == -11
    assert str(finished) == "killed by SIGSEGV (touched memory that is not its own)\nbefore"


def test_a_snippet_sees_its_arguments_and_the_helpers():
    finished = run_snippet("import sys, helpers.paths; print(sys.argv[1])", "ü ö")
    assert (finished.returncode, finished.log.strip()) == (0, "ü ö")


def test_what_native_code_prints_stays_out_of_the_output(capfd):
    native._flush_c()
    print("before", flush=True)
    with quietly():
        os.write(1, b"noise\n")
        os.write(2, b"noise\n")
    print("after", flush=True)
    out, err = capfd.readouterr()
    assert out == "before\nafter\n" and err == ""
