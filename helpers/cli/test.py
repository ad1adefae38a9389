"""`test`: every test there is, and a list of what was left out."""

import os
import signal
from collections import Counter

import pytest

from helpers import paths

SLOW = ("notebooks", "browser")
TWO_PROCESSES = ("-p", "xdist", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Two processes take files of tests in their order: while one executes the notebooks, the other tries the exercises."""


class LeftOut:
    """A pytest plugin: before pytest's last line it says which tests did not run, and why."""

    def __init__(self):
        self.reasons = {}  # by the test's name: with two processes, some are reported by both

    def pytest_deselected(self, items):
        for item in items:
            marks = [mark for mark in SLOW if item.get_closest_marker(mark)]
            self.reasons[item.nodeid] = f"marked {marks[0]}" if marks else "not selected on the command line"

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped(report)

    def pytest_collectreport(self, report):
        if report.skipped:
            self._skipped(report)

    def _skipped(self, report):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.reasons[report.nodeid] = reason.removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter):
        if self.reasons:
            terminalreporter.section("left out")
            for reason, count in sorted(Counter(self.reasons.values()).items()):
                terminalreporter.write_line(f"{count} {'test' if count == 1 else 'tests'}: {reason}")
        else:
            terminalreporter.write_line("Nothing was left out.")


def main(options, rest):
    """Run pytest on tests/: all of it in two processes, a selection in this one; returns its exit code."""
    os.chdir(paths.ROOT)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A job in the background starts with Ctrl-C ignored and hands that on to its children; some tests press it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    selection = ["-m", " and ".join(f"not {mark}" for mark in SLOW)] if options.fast else []
    way = [*selection, *rest] or TWO_PROCESSES
    return int(pytest.main([*way], plugins=[LeftOut()]))
