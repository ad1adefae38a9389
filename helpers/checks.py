"""Is the learner's answer right, and if not, which mistake is it?

A notebook's exercise cell ends with `check("05.2", answer)`. What is right, and the hint for each usual
mistake, stands in helpers/exercises/nb05.py, which is imported when the first of its exercises is checked:

    @exercise("05.2", hint="4 bytes for each of the parameters that notebook 01 counted.")
    def bytes_that_are_not_weights(answer):
        if answer == 1234:
            return Correct("the graph itself needs little more than a kilobyte.")
        return "That counts BatchNorm's statistics too; they were folded into the convolutions."
"""

import importlib
import json
import pkgutil
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from helpers import exercises, paths

SOLVED, OPEN = "solved", "open"


@dataclass(frozen=True)
class Correct:
    """What a judge returns for a right answer; `why` is one sentence shown to the learner."""

    why: str


@dataclass(frozen=True)
class Exercise:
    id: str  # "NN.k": notebook and running number
    hint: str  # shown as long as there is no answer
    judge: Callable  # answer -> Correct, or a str: the hint for this mistake


_registered = {}


def exercise(id, *, hint):
    """Decorator: the function below judges the answers to exercise `id` ("NN.k").

    Raises ValueError for a malformed or already registered id, an empty hint, or an id that does not belong
    to the module nbNN it stands in (check() would never find it there).
    """
    if not re.fullmatch(r"\d\d\.[1-9]\d*", id):
        raise ValueError(f"Exercise id {id!r}: expected two digits, a dot and a running number, like '05.2'.")
    if not hint.strip():
        raise ValueError(f"Exercise {id}: the general hint is empty; say where to look.")

    def register(judge):
        module = judge.__module__.rpartition(".")[2]
        if re.fullmatch(r"nb\d\d", module) and module != f"nb{id[:2]}":
            raise ValueError(f"Exercise {id} stands in {module}.py; check() looks for it in nb{id[:2]}.py.")
        if id in _registered:
            first = _registered[id].judge.__name__
            raise ValueError(
                f"Exercise {id} is registered twice: by {first}() and {judge.__name__}(). "
                "Give one of them another number."
            )
        _registered[id] = Exercise(id, _one_line(hint), judge)
        return judge

    return register


def check(id, answer):
    """Judge an answer, print one line, and remember the outcome in artifacts/progress.json.

    None and Ellipsis mean "not tried yet". Whatever else the answer is, the line is printed and nothing
    raised: a judge that stumbles over an odd answer counts as "not quite".
    Raises ValueError for an id that no exercise has (the author's mistake, not the learner's).
    """
    found = _find(id)
    solved = False
    if answer is None or answer is Ellipsis:
        line = f"not yet. Hint: {found.hint}"
    else:
        verdict = _judge(found, answer)
        solved = isinstance(verdict, Correct)
        line = f"correct. {verdict.why}" if solved else f"not quite. {verdict}"
    print(_one_line(f"{id} {line}"))
    try:
        _remember(id, solved)
    except OSError as error:  # a full disk must not take the verdict away
        print(f"Progress is not saved: {error}")


def progress(notebook=None):
    """Print which exercises are solved: of every notebook, or of one ("05")."""
    known = sorted(_load(notebook) if notebook else _load_all(), key=_order)
    marks = _read()
    print("notebook  solved  open")
    for number in sorted({id[:2] for id in known}):
        ids = [id for id in known if id.startswith(f"{number}.")]
        open_ids = [id for id in ids if marks.get(id) != SOLVED]
        print(f"{number:8}  {len(ids) - len(open_ids)} of {len(ids)}  {' '.join(open_ids) or '-'}")


def ids(notebook):
    """The exercise ids of one notebook ("05"), in order; empty when it has none."""
    return sorted(_load(notebook), key=_order)


def _judge(found, answer):
    """Correct, or the hint to show."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy grumbles on stderr when an array is compared with a word
            verdict = found.judge(answer)
    except (Exception, SystemExit) as error:  # SystemExit: an answer that is a function may call exit()
        frames = traceback.walk_tb(error.__traceback__)
        if any(frame.f_code is getattr(answer, "__code__", None) for frame, _ in frames):
            return f"Your function raised {type(error).__name__}: {error}. Hint: {found.hint}"
        return f"{found.hint} (Your answer is of type {type(answer).__name__}.)"
    if isinstance(verdict, Correct) or (isinstance(verdict, str) and verdict.strip()):
        return verdict
    return f"{found.hint} (Your answer is of type {type(answer).__name__}.)"  # a judge without words for it


def _find(id):
    if not isinstance(id, str) or not re.match(r"\d\d\.", id):
        raise ValueError(f'check() takes the number of an exercise as text, like "05.2"; it got {id!r}.')
    known = _load(id[:2])
    if id not in known:
        missing = f"none (helpers/exercises/nb{id[:2]}.py is missing or empty)"
        there = ", ".join(sorted(known, key=_order)) or missing
        raise ValueError(f"There is no exercise {id}. Exercises of notebook {id[:2]}: {there}.")
    return _registered[id]


def _load(notebook):
    """Import the exercises of one notebook ("05"); returns their ids."""
    module = f"{exercises.__name__}.nb{notebook}"
    try:
        importlib.import_module(module)
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            return [id for id in _registered if id.startswith(f"{notebook}.")]
        # Forget the half that was registered: the next attempt must show this error, not "registered twice".
        for id in [id for id in _registered if id.startswith(f"{notebook}.")]:
            del _registered[id]
        raise
    return [id for id in _registered if id.startswith(f"{notebook}.")]


def _load_all():
    modules = (module.name for module in pkgutil.iter_modules(exercises.__path__))
    return [id for name in modules if re.fullmatch(r"nb\d\d", name) for id in _load(name[2:])]


def _remember(id, solved):
    """Once solved stays solved: progress is what the learner has mastered, not what the last run printed."""
    marks = _read()
    mark = SOLVED if solved or marks.get(id) == SOLVED else OPEN
    if marks.get(id) == mark:
        return
    marks[id] = mark
    paths.write_text(_file(), json.dumps(marks, indent=1, sort_keys=True) + "\n")


def _read():
    """{id: "solved" | "open"}; a missing or damaged file counts as empty; the next check replaces it."""
    try:
        marks = json.loads(_file().read_text(encoding="utf-8"))
        return {id: mark for id, mark in marks.items() if mark in (SOLVED, OPEN)}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _file():
    return paths.ARTIFACTS / "progress.json"


def _order(id):
    notebook, number = id.split(".")
    return notebook, int(number)


def _one_line(text):
    return " ".join(text.split())
