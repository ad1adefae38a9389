"""doctor finds what is broken, names the remedy, and stays calm itself."""

import hashlib
import json
import shutil
import socket
import sys
from types import SimpleNamespace

import pytest
from tiny_project import call

from helpers.cli import bootstrap, doctor


@pytest.fixture
def healthy(tmp_path, monkeypatch):
    """A project that the running environment satisfies, with one data file; nothing is wrong with it."""
    (tmp_path / "requirements.txt").write_text("pytest==1.0\nMNN==3.6.1\n")
    data = tmp_path / "data/mnist"
    data.mkdir(parents=True)
    (data / "train.gz").write_bytes(b"images")
    digest = hashlib.sha256(b"images").hexdigest()
    (data / "checksums.sha256").write_text(f"{digest}  train.gz\n{'0' * 64}  train\n")
    (tmp_path / "data/pretrained").mkdir()
    (tmp_path / "data/pretrained/net.pt").write_bytes(b"weights")
    weights = {"net.pt": {"sha256": hashlib.sha256(b"weights").hexdigest()}}
    (tmp_path / "data/pretrained/manifest.json").write_text(json.dumps(weights))
    monkeypatch.delenv("MNN_COURSE_ARTIFACTS", raising=False)
    monkeypatch.setattr(bootstrap, "installed", lambda path=None: {"pytest": "1.0", "mnn": "3.6.1"})
    monkeypatch.setattr(bootstrap, "environment_kind", lambda: "conda environment")
    monkeypatch.setattr(doctor, "IMPORTS", ("json",))
    monkeypatch.setattr(doctor.check_imports, "__defaults__", (("json",),))
    return tmp_path


def report(root, capsys):
    """(exit code, the checks that found something wrong, all checks)."""
    code = doctor.main(SimpleNamespace(json=True), [], root)
    answer = json.loads(capsys.readouterr().out)
    wrong = {check["name"]: check for check in answer["checks"] if not check["ok"]}
    assert answer["ok"] is not bool(wrong) and code == bool(wrong)
    assert all(check["remedy"] for check in wrong.values())
    return code, wrong, {check["name"]: check for check in answer["checks"]}


def test_healthy_environment_has_exit_code_0_and_every_subject(healthy, capsys):
    code, wrong, checks = report(healthy, capsys)
    assert (code, wrong) == (0, {})
    subjects = "Python, environment, package MNN, import json, processor, processor cores, memory, disk, "
    subjects += "data/mnist/train.gz, artifacts, loopback network, Jupyter kernel"
    assert set(subjects.split(", ")) <= set(checks)


def test_text_report_says_the_remedy_below_what_is_wrong(healthy, capsys):
    (healthy / "data/mnist/train.gz").unlink()
    assert doctor.main(SimpleNamespace(json=False), [], healthy) == 1
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("WRONG data/mnist/train.gz: missing")
    assert lines[place + 1] == "      -> Bring it back with: git checkout -- data"
    assert lines[-1].startswith("1 of ")


def test_missing_package_is_found(healthy, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "installed", lambda path=None: {"pytest": "1.0"})
    code, wrong, _ = report(healthy, capsys)
    assert code == 1 and list(wrong) == ["package MNN"]
    assert wrong["package MNN"]["found"] == "not installed, expected 3.6.1"
    assert "pip install -r requirements.txt" in wrong["package MNN"]["remedy"]


def test_wrong_version_is_found(healthy, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "installed", lambda path=None: {"pytest": "1.0", "mnn": "2.9.0"})
    _, wrong, _ = report(healthy, capsys)
    assert wrong["package MNN"]["found"] == "2.9.0, expected 3.6.1"


@pytest.mark.parametrize(
    "module, source, words",
    [
        ("broken", "import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("crashing", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with signal 11"),
        ("leaving", "import os; os._exit(3)", "it ended with code 3"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="a crash has no signal there")
def test_import_that_fails_or_crashes_is_found(healthy, monkeypatch, capsys, module, source, words):
    (healthy / f"{module}.py").write_text(source)
    monkeypatch.setattr(doctor.check_imports, "__defaults__", ((module, "json"),))
    _, wrong, checks = report(healthy, capsys)
    assert list(wrong) == [f"import {module}"] and words in wrong[f"import {module}"]["found"]
    assert checks["import json"]["ok"]


def test_altered_data_file_is_found_with_both_checksums(healthy, capsys):
    (healthy / "data/mnist/train.gz").write_bytes(b"imagez")
    _, wrong, _ = report(healthy, capsys)
    assert hashlib.sha256(b"imagez").hexdigest() in wrong["data/mnist/train.gz"]["found"]
    assert hashlib.sha256(b"images").hexdigest() in wrong["data/mnist/train.gz"]["found"]


def test_missing_checksums_are_found(healthy, capsys):
    shutil.rmtree(healthy / "data")
    assert list(report(healthy, capsys)[1]) == ["data/mnist/checksums.sha256", "data/pretrained/manifest.json"]


def test_altered_weights_are_found(healthy, capsys):
    (healthy / "data/pretrained/net.pt").write_bytes(b"weightz")
    assert list(report(healthy, capsys)[1]) == ["data/pretrained/net.pt"]


def test_artifacts_that_cannot_be_written_are_found(healthy, capsys):
    (healthy / "artifacts").write_text("a file where a folder should be")
    _, wrong, _ = report(healthy, capsys)
    assert list(wrong) == ["artifacts"] and "MNN_COURSE_ARTIFACTS" in wrong["artifacts"]["remedy"]


def test_missing_requirements_are_found(healthy, capsys):
    (healthy / "requirements.txt").unlink()
    assert list(report(healthy, capsys)[1]) == ["requirements.txt"]


def test_full_disk_and_little_memory_are_found(healthy, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 10**6))
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 10**9)
    assert {"disk", "memory"} <= set(report(healthy, capsys)[1])


def test_closed_loopback_is_found(healthy, monkeypatch, capsys):
    def refuse(*arguments, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_connection", refuse)
    _, wrong, _ = report(healthy, capsys)
    assert list(wrong) == ["loopback network"] and "127.0.0.1" in wrong["loopback network"]["remedy"]


def test_too_old_python_without_an_environment_is_found(healthy, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "environment_kind", lambda: None)
    monkeypatch.setattr(bootstrap, "OLDEST", (3, 99))
    monkeypatch.setattr(bootstrap, "NEWEST", (3, 99))
    _, wrong, _ = report(healthy, capsys)
    assert list(wrong) == ["Python", "environment"] and "too old" in wrong["Python"]["remedy"]
    assert wrong["environment"]["found"] == "there is none yet"


def test_another_kernelspec_of_that_name_is_mentioned_but_not_wrong(healthy, monkeypatch, capsys):
    kernel = healthy / "shared/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("{}")
    monkeypatch.setenv("JUPYTER_PATH", str(healthy / "shared"))
    _, wrong, checks = report(healthy, capsys)
    assert wrong == {} and str(healthy / "shared") in checks["Jupyter kernel"]["found"]


# --- the states of .venv, in a project of its own ------------------------------------------------------


def of_tiny(project):
    """What doctor says, called as a user calls it, about the environment and the packages of a tiny project."""
    result = call(project, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    return checks["environment"], checks.get("package tinypin")


def test_fresh_clone_has_no_environment_and_doctor_makes_none(tiny):
    environment, package = of_tiny(tiny)
    assert not environment["ok"] and "helpers lab" in environment["remedy"]
    assert package is None
    assert not (tiny / ".venv").exists() and not (tiny / "artifacts").exists()


def test_environment_made_by_the_first_call_is_found_in_order(made):
    environment, package = of_tiny(made.project)
    assert environment["ok"] and str(bootstrap.venv_python(made.project)) in environment["found"]
    assert package["ok"] and package["found"] == "1.0"


def test_interrupted_installation_is_found(furnished):
    (furnished / ".venv/mnn-course.incomplete").write_text("")
    assert "interrupted" in of_tiny(furnished)[0]["found"]


def test_environment_without_its_python_is_found(furnished):
    bootstrap.venv_python(furnished).unlink()
    assert "no Python" in of_tiny(furnished)[0]["found"]


def test_environment_for_other_pins_is_found(furnished, made):
    shutil.copy(made.project / ".venv/mnn-course.json", furnished / ".venv")
    assert "other pins" in of_tiny(furnished)[0]["found"]
