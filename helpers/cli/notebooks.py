"""Which notebooks a command means."""

from helpers.cli import CommandError


def select(numbers, folder):
    """The paths of the notebooks `numbers` (["05", "6"]) in `folder`, in the course's order; of all when empty.

    Raises CommandError when there is none with such a number, saying which exist.
    """
    existing = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not existing:
        raise CommandError(f"There is no notebook in {folder}; expected files like 01_train.ipynb.")
    wanted = {number.zfill(2) for number in numbers}
    unknown = wanted - {path.name[:2] for path in existing}
    if unknown:
        names = ", ".join(path.stem for path in existing)
        raise CommandError(
            f"There is no notebook {', '.join(sorted(unknown))}. These exist: {names}. "
            "Give their two digits, as in: run 05"
        )
    return [path for path in existing if not wanted or path.name[:2] in wanted]
