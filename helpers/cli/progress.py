"""One line that says how far something is: rewritten in a terminal, printed now and then elsewhere."""

import shutil
import sys
import time


class Progress:
    """show() as often as you like; done() leaves its text standing.

    In a terminal the line is overwritten in place. In a file or a CI log a changing line is unreadable, so at most
    one is printed in `every` seconds.
    """

    def __init__(self, stream=None, every=30):
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.every = every
        self._last = time.monotonic()

    def show(self, text):
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self._write("\r" + text[:width].ljust(width))
        elif time.monotonic() - self._last >= self.every:
            self.done(text)

    def done(self, text=""):
        """Print `text` for good; with no text, only clean up the line."""
        if self.terminal:
            self._write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
        if text:
            self._write(text + "\n")
        self._last = time.monotonic()

    def _write(self, text):
        self.stream.write(text)
        self.stream.flush()


def bar(done, total, width=20):
    """[########............] for 8 of 20."""
    filled = width * done // max(total, 1)
    return "[" + "#" * filled + "." * (width - filled) + "]"
