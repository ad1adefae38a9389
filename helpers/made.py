"""A folder that was made once and takes long to make again: what it was made from, and whether it is still whole.

    with atomic_write(folder) as temporary:
        …                                      # make the folder
        seal(temporary, {"bits": 8}, ["weights"])
    fits(folder, {"bits": 8})                  # True, until a sealed file is cut short or what it is made from differs
"""

import json

from .paths import write_text

RECORD = "made.json"


def seal(folder, made_from, names):
    """Write `folder`/made.json: what the folder was made from (whatever JSON can hold), and the size of these files."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    write_text(folder / RECORD, json.dumps({"made_from": made_from, "bytes": sizes}, indent=2) + "\n")


def fits(folder, made_from):
    """Whether the folder was sealed as made from just that, and each sealed file still has its size."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in record["bytes"].items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
    return whole and record["made_from"] == made_from


def size(folder):
    """Bytes of all files in a folder and the folders in it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def fingerprint(folder):
    """[[name, bytes, time of the last change], …] of the files in a folder: gigabytes need not be read for that."""
    files = ((file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file())
    return [[name, status.st_size, status.st_mtime_ns] for name, status in files]
