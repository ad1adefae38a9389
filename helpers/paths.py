"""Where things are, and how a file or a folder is written so that nobody ever sees half of it."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
DATA = ROOT / "data"
ARTIFACTS = Path(os.environ.get("MNN_COURSE_ARTIFACTS", ROOT / "artifacts")).resolve()
LLM_CACHE = Path(os.environ.get("MNN_COURSE_LLM_CACHE") or ARTIFACTS / "llm").resolve()


def short(path):
    """The path as the learner thinks of it: relative to the project where that is possible, with forward slashes."""
    path = Path(path).resolve()
    for base, prefix in ((LLM_CACHE, "artifacts/llm"), (ARTIFACTS, "artifacts"), (ROOT, "")):
        if path.is_relative_to(base):
            return (Path(prefix) / path.relative_to(base)).as_posix()
    return path.as_posix()


@contextmanager
def atomic_write(path):
    """Yield a temporary path beside `path`; rename it to `path` when the block ends well, delete it otherwise.

    The block makes a file there, or a folder. The folder around it is made when missing. What exists at `path` stays
    untouched until the rename, and if the block raises it stays for good.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        temporary = Path(folder) / path.name
        yield temporary
        if temporary.is_dir() and path.is_dir():  # os.replace replaces no folder; the old one goes with the scratch
            os.replace(path, Path(folder) / "old")
        os.replace(temporary, path)


def write_text(path, text):
    """Write `text` as UTF-8 to `path`, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
