"""The first call makes the environment, later ones use it, and what goes wrong is said in one sentence."""

import ast
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tiny_project import ROOT, bare_environment, call, command, write_project

from helpers.cli import CommandError, bootstrap
from helpers.pip_log import reason

ON_ANY_PYTHON = [
    "helpers/__init__.py",
    "helpers/__main__.py",
    "helpers/pip_log.py",
    *(f"helpers/cli/{name}.py" for name in ("__init__", "bootstrap", "doctor", "notebooks", "progress")),
]


def arrived(result, project, version="1.0"):
    expected = f"arrived in {project / '.venv'} with tinypin {version} and mnn-course 1.0"
    assert result.stdout.strip() == expected, result.stdout + result.stderr
    assert result.returncode == 0


def failed(result, *words):
    """Exit code 1 and, as the last thing said, one line that holds all words; no traceback."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    for word in words:
        assert word in last, last


# --- making and using it -------------------------------------------------------------------------------


def test_first_call_makes_the_environment_and_goes_on_in_it(made):
    arrived(made.first, made.project)
    assert "Setting up the course's environment" in made.first.stderr
    assert "tinypin" in (made.project / "artifacts/logs/install.log").read_text()
    assert bootstrap.is_ready(made.project)


def test_later_call_arrives_within_two_seconds_and_says_nothing(made):
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        result = call(made.project, "run", PIP_FIND_LINKS="nowhere")
        seconds.append(time.monotonic() - start)
        arrived(result, made.project)
        assert result.stderr == ""
    assert min(seconds) < 2  # the others may have waited for a busy machine


def test_call_from_inside_the_environment_uses_it(made):
    options = command(made.project, "run")[1]
    python = bootstrap.venv_python(made.project)
    arrived(subprocess.run([python, "-m", "helpers", "run"], **options), made.project)


def test_changed_pins_are_installed_by_the_next_call(made):
    requirements = made.project / "requirements.txt"
    before = requirements.read_text()
    requirements.write_text("tinypin==2.0\n")
    result = call(made.project, "run")
    arrived(result, made.project, "2.0")
    assert "bringing it up to date" in result.stderr
    requirements.write_text(before)
    arrived(call(made.project, "run"), made.project)


def test_changed_comment_installs_nothing(made):
    requirements = made.project / "requirements.txt"
    requirements.write_text(requirements.read_text() + "\n# another comment\r\n")
    assert bootstrap.is_ready(made.project)


def test_package_that_the_user_removed_comes_back(made):
    python = bootstrap.venv_python(made.project)
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "tinypin"], check=True)
    arrived(call(made.project, "run"), made.project)


@pytest.mark.skipif(os.name == "nt", reason="kills a process group, which Windows does not have")
def test_killed_installation_is_noticed_and_finished_by_the_next_call(furnished):
    argv, options = command(furnished, "run", TINY_SLEEP="60")
    first = subprocess.Popen(argv, start_new_session=True, **options)
    log = furnished / "artifacts/logs/install.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and "--no-build-isolation" in log.read_text()):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert not bootstrap.is_ready(furnished)
    (furnished / ".venv" / "half").write_text("left by the first call")

    second = call(furnished, "run")
    arrived(second, furnished)
    assert "interrupted" in second.stderr
    assert not (furnished / ".venv" / "half").exists()


def test_two_first_calls_at_once_make_one_environment(tiny):
    argv, options = command(tiny, "run", TINY_SLEEP="3")  # seconds: long enough for the second to come meanwhile
    calls = [subprocess.Popen(argv, **options) for _ in range(2)]
    results = [(*child.communicate(timeout=120), child.returncode) for child in calls]
    for stdout, stderr, code in results:
        arrived(subprocess.CompletedProcess([], code, stdout, stderr), tiny)
    words = "".join(stderr for _, stderr, _ in results)
    assert words.count("Setting up the course's environment") == 1
    assert words.count("waiting for it") == 1


def test_moved_project_gets_its_environment_anew(furnished, made):
    shutil.copy(made.project / ".venv/mnn-course.json", furnished / ".venv")  # as it comes along with a moved folder
    (furnished / ".venv" / "old").write_text("")
    result = call(furnished, "run")
    arrived(result, furnished)
    assert "was moved" in result.stderr
    assert not (furnished / ".venv" / "old").exists()


def test_environment_that_the_user_made_by_hand_is_completed_not_deleted(furnished):
    (furnished / ".venv" / "mine").write_text("")
    arrived(call(furnished, "run"), furnished)
    assert (furnished / ".venv" / "mine").exists()


def test_settings_of_the_user_do_not_divert_the_installation(furnished):
    (furnished / "elsewhere/pip").mkdir(parents=True)
    (furnished / "elsewhere/pip/__main__.py").write_text("raise SystemExit('not this pip')")
    elsewhere = str(furnished / "elsewhere")
    arrived(call(furnished, "run", PYTHONPATH=elsewhere, PIP_TARGET=elsewhere, PIP_USER="1"), furnished)


# --- an environment that is already there --------------------------------------------------------------


@pytest.fixture
def satisfied(tmp_path, monkeypatch):
    """A project folder whose one pin the running environment satisfies, and where making .venv would be noticed."""
    (tmp_path / "requirements.txt").write_text("pytest==1.2.3\n")
    monkeypatch.setattr(bootstrap, "installed", lambda path=None: {"pytest": "1.2.3"})
    monkeypatch.setattr(bootstrap, "_make", lambda root, say: pytest.fail("it made an environment"))
    return tmp_path


def test_active_conda_environment_with_all_pins_is_used(satisfied, monkeypatch):
    monkeypatch.setenv("CONDA_PREFIX", sys.prefix)
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert bootstrap.environment_kind() == "conda environment"
    assert bootstrap.ensure(satisfied) == sys.executable


def test_virtual_environment_with_all_pins_is_used(satisfied, monkeypatch):
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "base_prefix", "/somewhere/else")
    assert bootstrap.ensure(satisfied) == sys.executable


def test_conda_prefix_of_another_environment_does_not_count(satisfied, monkeypatch):
    monkeypatch.setenv("CONDA_PREFIX", str(satisfied))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert bootstrap.environment_kind() is None


@pytest.mark.parametrize("pin", ["pytest==9.9.9", "nowhere-to-be-found==1.0"])
def test_active_environment_without_a_pin_is_left_alone_and_the_reason_said(satisfied, monkeypatch, pin):
    (satisfied / "requirements.txt").write_text(f"{pin}\n")
    monkeypatch.setenv("CONDA_PREFIX", sys.prefix)
    monkeypatch.setattr(bootstrap, "_make", lambda root, say: None)
    said = []
    assert bootstrap.ensure(satisfied, said.append) == str(bootstrap.venv_python(satisfied))
    assert pin.replace("==", " ") in said[0] and "conda environment" in said[0]


def test_cpu_build_satisfies_a_pin_and_names_have_one_spelling(monkeypatch, tmp_path):
    for folder, name, version in (("torch-2.14.1+cpu", "torch", "2.14.1+cpu"), ("jupyter_x-1.0", "jupyter_x", "1.0")):
        info = tmp_path / f"{folder}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = bootstrap.installed([str(tmp_path)])
    assert bootstrap.unmet({"torch": "2.14.1", "Jupyter-X": "1.0"}, found) == {}
    assert bootstrap.unmet({"torch": "2.14.2"}, found) == {"torch": ("2.14.2", "2.14.1")}


# --- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version, word", [((3, 10), "too old"), ((3, 8, 1), "too old"), ((3, 14), "too new")])
def test_python_outside_the_range_is_refused(monkeypatch, version, word):
    monkeypatch.setattr(bootstrap, "_starts", lambda name: False)
    with pytest.raises(CommandError, match=f"{version[0]}.{version[1]}, {word}.* 3.11 to 3.13"):
        bootstrap.check_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12, 1), (3, 13)])
def test_python_inside_the_range_is_accepted(version):
    bootstrap.check_python(version)


def test_too_old_python_is_told_which_other_one_is_there(monkeypatch):
    monkeypatch.setattr(bootstrap, "_starts", lambda name: name == "python3.12")
    with pytest.raises(CommandError, match="run python3.12 -m helpers"):
        bootstrap.check_python((3, 9))


@pytest.mark.parametrize("path", ON_ANY_PYTHON)
def test_what_starts_first_has_no_syntax_newer_than_python_3_7(path):
    ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_what_starts_first_imports_the_standard_library_only():
    modules = [path[:-3].replace("/", ".").removesuffix(".__init__") for path in ON_ANY_PYTHON]
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(modules)}\n"
        "names = {name.split('.')[0] for name in sys.modules} - {'helpers', '__main__'}\n"
        "print(*sorted(names - sys.stdlib_module_names))"
    )
    # -S: without site-packages nothing else could be imported; the list catches what hides in a try.
    result = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("", "")


def closed_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_pin_that_the_index_lacks_is_one_sentence(furnished):
    (furnished / "requirements.txt").write_text("tinypin==3.0\n")
    failed(call(furnished, "run"), "no tinypin==3.0 for this Python", str(furnished / "artifacts/logs/install.log"))
    assert not bootstrap.is_ready(furnished)


@pytest.mark.parametrize("retries", ["0", "1"])
def test_unreachable_index_is_one_sentence(furnished, retries):
    index = f"http://127.0.0.1:{closed_port()}/simple"
    more = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "PIP_RETRIES": retries}
    (furnished / "requirements.txt").write_text("tinypin==3.0\n")
    log = str(furnished / "artifacts/logs/install.log")
    failed(call(furnished, "run", **more), "the package index can't be reached", "connect to the network", log)
    assert not bootstrap.is_ready(furnished)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_full_disk_is_one_sentence(furnished):
    log = furnished / "artifacts/logs/install.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    failed(call(furnished, "run"), "the disk is full", "free some space", str(log))
    assert not bootstrap.is_ready(furnished)


def test_artifacts_that_cannot_be_written_are_one_sentence(tiny):
    (tiny / "artifacts").write_text("a file where a folder should be")
    failed(call(tiny, "run"), "Can't write in", str(tiny / "artifacts"))


def test_too_little_space_is_noticed_before_the_download(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 3 * 10**9))
    with pytest.raises(CommandError, match="needs 7 GB .* 3.0 GB are free"):
        bootstrap._check_disk(tmp_path, 7)
    bootstrap._check_disk(tmp_path, 2)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for Python is a shell script")
def test_python_without_venv_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "requirements.txt").write_text("tinypin==1.0\n")
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho 'The virtual environment was not created successfully because ensurepip is not\n"
        "available.  On Debian/Ubuntu systems, you need to install the python3-venv package'\nexit 1\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python))
    monkeypatch.delenv("MNN_COURSE_ARTIFACTS", raising=False)
    with pytest.raises(
        CommandError, match="lacks the module that makes virtual environments.*apt install python3-venv"
    ):
        bootstrap._make(tmp_path, lambda text: None)


LOGS = [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
    (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3."
        "HTTPSConnection>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'\n"
        "ERROR: Could not find a version that satisfies the requirement torch==2.14.1 (from versions: none)\n"
        "ERROR: No matching distribution found for torch==2.14.1",
        "can't be reached",
    ),
    ("ERROR: HTTPSConnectionPool: Max retries exceeded ... getaddrinfo failed", "can't be reached"),
    ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out.", "can't be reached"),
    ("Could not fetch URL: SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "certificate"),
    ("ERROR: No matching distribution found for MNN==3.6.1", "no MNN==3.6.1 for this Python"),
    ("ERROR: ResolutionImpossible: for help visit", "exclude one another"),
    ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "damaged"),
    ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'", "can't be written"),
    ("Error: Command '['python', '-m', 'ensurepip']' ... No module named ensurepip", "virtual environments"),
    ("ERROR: something never seen before", "pip failed: ERROR: something never seen before"),
]


@pytest.mark.parametrize("log, words", LOGS)
def test_reason_is_read_from_the_log(log, words):
    what, remedy = reason(f"Collecting torch\n{log}\n", 1)
    assert words in what and remedy


def test_pip_that_was_killed_is_said_to_be():
    assert reason("Collecting torch\n", -9) == (
        "pip was killed by signal 9",
        "make sure that at least 2 GB of memory are free",
    )


# --- PyTorch's CPU index -------------------------------------------------------------------------------


@pytest.fixture
def on_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "x86_64")


def test_cpu_index_that_answers_is_used_and_said(monkeypatch, on_linux):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/whl/cpu/torch/" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}/whl/cpu"
        monkeypatch.setattr(bootstrap, "PYTORCH_CPU_INDEX", index)
        options, (sentence, _) = bootstrap._torch_source({"torch": "2.14.1"})
        monkeypatch.setattr(bootstrap, "PYTORCH_CPU_INDEX", index + "/not-there")
        assert bootstrap._torch_source({"torch": "2.14.1"})[0] == []
        server.shutdown()
    assert options == ["--extra-index-url", index]
    assert "CPU build" in sentence and "0.2 GB" in sentence


def test_cpu_index_that_hangs_is_given_up_after_three_seconds(monkeypatch, on_linux):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(bootstrap, "PYTORCH_CPU_INDEX", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        options, (sentence, _) = bootstrap._torch_source({"torch": "2.14.1"})
        assert 2.5 < time.monotonic() - start < 6  # 3 s, and what a busy machine adds
    assert options == []
    assert "3 GB to download" in sentence and "CUDA" in sentence


def test_name_lookup_that_hangs_is_given_up_too(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(bootstrap.urllib.request, "urlopen", lambda url, timeout: over.wait(20))
    start = time.monotonic()
    assert not bootstrap._answers("http://localhost", 0.2)
    assert time.monotonic() - start < 10  # not 20
    over.set()


@pytest.mark.parametrize("system, machine", [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")])
def test_other_systems_ask_no_second_index(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: machine)
    monkeypatch.setattr(bootstrap, "_answers", lambda *arguments: pytest.fail("it asked"))
    assert bootstrap._torch_source({"torch": "2.14.1"})[0] == []


def test_nothing_is_asked_when_torch_is_not_pinned():
    assert bootstrap._torch_source({"tinypin": "1.0"}) == ([], None)


def test_the_tiny_project_is_the_real_one_where_it_matters(tmp_path):
    project = write_project(tmp_path / "copy")
    for path in ON_ANY_PYTHON:
        assert (project / path).read_bytes() == (ROOT / path).read_bytes()
    assert "PATH" in bare_environment(project) and "PYTHONPATH" not in bare_environment(project)
    assert isinstance(bootstrap.venv_python(Path("x")), Path)
