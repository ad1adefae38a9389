"""A tiny copy of the project that is installed in seconds and without the network."""

import shutil

import pytest
from tiny_project import call, write_project


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A tiny project whose environment has been made by a first call; the call's result is `made.first`."""
    project = write_project(tmp_path_factory.mktemp("made") / "Ein Kurs é")
    first = call(project, "run")

    class Made:
        pass

    Made.project, Made.first = project, first
    return Made


@pytest.fixture
def tiny(tmp_path):
    """A tiny project, fresh from the clone."""
    return write_project(tmp_path / "project")


@pytest.fixture
def furnished(tiny, made):
    """A tiny project with a .venv as a user makes one by hand: a Python with pip, and nothing of ours."""
    shutil.copytree(made.project / ".venv", tiny / ".venv", symlinks=True)
    (tiny / ".venv/mnn-course.json").unlink()
    return tiny
