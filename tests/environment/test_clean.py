"""clean deletes what can be made again and nothing else, needs no environment, and says what and how much."""

import errno
import os
from pathlib import Path

import pytest
from tiny_project import call

from helpers.cli import CommandError, clean
from helpers.llm_weights import GGUF


def fill(folder, files):
    for name, size in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))


def left(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


CACHES = {
    "html/index.html": 100,
    "screenshots/a/b.png": 200,
    "mnist/MNIST/raw/t10k-images-idx3-ubyte": 300,
    ".writing-abc/mnist_cnn.mnn": 7,
    f"llm/{GGUF}": 1000,
    "llm/SmolLM2-135M-Instruct/made.json": 10,
    "llm/SmolLM2-135M-Instruct/model.safetensors": 20_000,
    "llm/my model-w4-b64/made.json": 10,
    "llm/.writing-xyz/wheel/a.whl": 3,
}
OWN = {"mnist_cnn.pt": 40, "mnist_cnn.mnn": 50, "progress.json": 60, "logs/a.log": 70, "llm/mine.gguf": 80}


@pytest.fixture
def project(tiny):
    fill(tiny / "artifacts", {**CACHES, **OWN})
    return tiny


def test_caches_go_and_what_is_the_learners_stays(project):
    result = call(project, "clean")
    assert result.returncode == 0, result.stderr
    assert left(project / "artifacts") == sorted(OWN)
    assert f"Deleted {sum(CACHES.values()):,} bytes." in result.stdout
    assert "artifacts/llm/SmolLM2-135M-Instruct: 20,010 bytes" in result.stdout.splitlines()
    assert "Kept: your weights" in result.stdout
    assert not (project / ".venv").exists()


def test_a_dry_run_says_the_same_and_deletes_nothing(project):
    result = call(project, "clean", "--dry-run")
    assert result.returncode == 0 and left(project / "artifacts") == sorted({**CACHES, **OWN})
    dry = result.stdout.replace("Would delete", "Deleted")
    assert "Would delete" in result.stdout and dry == call(project, "clean").stdout


def test_all_means_all_of_artifacts(project):
    result = call(project, "clean", "--all")
    assert result.returncode == 0 and left(project / "artifacts") == []
    assert f"Deleted {sum({**CACHES, **OWN}.values()):,} bytes." in result.stdout
    assert (project / "notebooks" / "01_train.ipynb").exists() and (project / "helpers").exists()


def test_nothing_to_delete_is_said(tiny):
    result = call(tiny, "clean")
    assert result.returncode == 0 and "Nothing to delete." in result.stdout


@pytest.mark.parametrize("options", [[], ["--all"]])
def test_in_a_cache_elsewhere_only_what_the_course_made_goes(project, tmp_path, options):
    elsewhere = tmp_path / "models"
    fill(elsewhere, {"a/model.safetensors": 5, "mine.gguf": 6, GGUF: 7, "x-w8-b32/made.json": 8})
    result = call(project, "clean", *options, MNN_COURSE_LLM_CACHE=str(elsewhere))
    assert result.returncode == 0 and left(elsewhere) == ["a/model.safetensors", "mine.gguf"]


def test_all_is_refused_for_artifacts_elsewhere_which_may_hold_more(project, tmp_path):
    fill(tmp_path / "home", {"letters.txt": 5, "html/index.html": 6})
    result = call(project, "clean", "--all", MNN_COURSE_ARTIFACTS=str(tmp_path / "home"))
    assert result.returncode == 1 and result.stderr.startswith("error: MNN_COURSE_ARTIFACTS points to ")
    assert left(tmp_path / "home") == ["html/index.html", "letters.txt"]
    assert call(project, "clean", MNN_COURSE_ARTIFACTS=str(tmp_path / "home")).returncode == 0
    assert left(tmp_path / "home") == ["letters.txt"]


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege there")
def test_of_a_link_only_the_link_goes(project, tmp_path):
    fill(tmp_path / "pages", {"index.html": 1000})
    for path in sorted((project / "artifacts/html").iterdir()):
        path.unlink()
    (project / "artifacts/html").rmdir()
    Path(project / "artifacts/html").symlink_to(tmp_path / "pages")
    result = call(project, "clean")
    assert "artifacts/html: 0 bytes" in result.stdout.splitlines()
    assert left(tmp_path / "pages") == ["index.html"] and not (project / "artifacts/html").is_symlink()


def test_what_cannot_be_deleted_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", f"{path}/index.html")

    monkeypatch.setattr(clean.shutil, "rmtree", refuse)
    with pytest.raises(CommandError, match="Can't delete .*index.html .Permission denied.: close the notebooks"):
        clean.delete(tmp_path)
