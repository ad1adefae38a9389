"""These tests need Chromium and its driver: without them they are left out, except in CI, where they must run."""

import os

import browsing
import pytest

HERE = os.path.dirname(__file__)


def pytest_collection_modifyitems(items):
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def needed_programs():
    reason = left_out()
    if reason and os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{reason} In CI the browser tests must run.", pytrace=False)
    if reason:
        pytest.skip(reason)


def left_out():
    """Why these tests can't run here, in one sentence; None when they can."""
    missing = [name for name, path in zip(("Chromium", "chromedriver"), browsing.programs(), strict=True) if not path]
    return f"{' and '.join(missing)} not found, so nothing was tried in a browser." if missing else None


@pytest.fixture
def caught(needed_programs):
    with browsing.proxy() as caught:
        yield caught
