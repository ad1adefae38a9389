"""What a notebook's run is given."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import support


@pytest.fixture
def variables(name, request, record_property):
    """Environment variables for the run of the notebook `name`; none but for the one with the language model."""
    record_property("network", "cut" if support.network_cut() else "watched")
    return request.getfixturevalue("language_model") if name.startswith("10_") else {}


@pytest.fixture(scope="session")
def language_model(gguf):
    """Where notebook 10 finds the weights that it would download: a cache with that one file, deleted at the end.

    The first run in this process that gets it makes the rest, the second finds it made.
    """
    with tempfile.TemporaryDirectory(prefix="course-llm-", ignore_cleanup_errors=True) as folder:
        try:
            os.link(gguf, Path(folder, gguf.name))
        except OSError:  # on another disk
            shutil.copy2(gguf, folder)
        yield {"MNN_COURSE_LLM_CACHE": folder}
