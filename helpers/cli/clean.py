"""`clean`: delete what the notebooks can make again, and say how much that is. Standard library only.

It deletes what it knows by name, never a folder as a whole that somebody may have pointed it to.
"""

import os
import shutil
from pathlib import Path

from helpers import paths
from helpers.cli import CommandError
from helpers.llm_weights import GGUF
from helpers.made import RECORD

CACHES = ("html", "screenshots", "mnist")
"""Folders in artifacts/ that any notebook or command makes again, of nothing that is the learner's."""


def main(options, _rest):
    """Delete caches, with --all everything in artifacts/, with --dry-run nothing; returns 0."""
    doomed = everything() if options.all else caches()
    doomed += [path for path in llm_caches() if not {path, *path.parents} & set(doomed)]
    total = 0
    for path in doomed:
        size = bytes_of(path)
        total += size
        print(f"{paths.short(path.parent)}/{path.name}: {size:,} bytes")
        if not options.dry_run:
            delete(path)
    print(f"{'Would delete' if options.dry_run else 'Deleted'} {total:,} bytes." if doomed else "Nothing to delete.")
    if not options.all:
        print("Kept: your weights, the models made of them and your progress (--all deletes these too).")
    return 0


def caches():
    """Paths of the caches in artifacts/, and of what a command that was killed left half written."""
    return [path for path in contents(paths.ARTIFACTS) if path.name in CACHES or path.name.startswith(".writing-")]


def llm_caches():
    """The same for the language models, which may lie elsewhere, among things that are not ours."""
    return [
        path
        for path in contents(paths.LLM_CACHE)
        if path.name == GGUF or path.name.startswith(".writing-") or (path / RECORD).is_file()
    ]


def everything():
    """Paths of all that is in artifacts/. Raises CommandError when that lies elsewhere."""
    if paths.ARTIFACTS != paths.ROOT / "artifacts":
        raise CommandError(
            f"MNN_COURSE_ARTIFACTS points to {paths.ARTIFACTS}, which may hold more than the course's files. "
            "Delete that folder yourself, or run clean without --all."
        )
    return contents(paths.ARTIFACTS)


def contents(folder):
    return sorted(folder.iterdir()) if folder.is_dir() else []


def bytes_of(path):
    """Bytes of a file, or of all files in a folder; a link counts for nothing, since what it points to stays."""
    if path.is_symlink():
        return 0
    if path.is_file():
        return path.stat().st_size
    return sum(bytes_of(Path(entry.path)) for entry in os.scandir(path))


def delete(path):
    """Delete a file, a folder, or a link but not what it points to. Raises CommandError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise CommandError(
            f"Can't delete {error.filename or path} ({error.strerror}): close the notebooks that use it, "
            "then run the same command again."
        ) from None
