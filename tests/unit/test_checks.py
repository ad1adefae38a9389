"""helpers.checks: one line a check, never a traceback, progress that survives what happens to files."""

import json
import sys

import numpy as np
import pytest

from helpers import checks, exercises, paths
from helpers.checks import Correct, check, exercise, progress

NB98 = """
from helpers.checks import Correct, exercise

@exercise("98.1", hint="Count the legs of a spider.")
def legs(answer):
    if answer == 8:
        return Correct("spiders have eight.")
    if answer == 6:
        return "Six is for insects."
    if callable(answer):
        return answer()
    return f"{answer + 0} is not the number."

@exercise("98.2", hint="Anything.")
def anything(answer):
    return {"true": True, "none": None, "blank": " ", "two lines": "First.\\n  Second."}[answer]

@exercise("98.10", hint="Ten.")
def ten(answer):
    return Correct("ten.")
"""


@pytest.fixture(autouse=True)
def course(tmp_path, monkeypatch):
    """An exercise module nb98 of this test's own, and an artifacts folder of its own."""
    folder = tmp_path / "exercises"
    folder.mkdir()
    (folder / "nb98.py").write_text(NB98, encoding="utf-8")
    monkeypatch.setattr(exercises, "__path__", [str(folder)])
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(checks, "_registered", {})
    yield folder
    for name in [name for name in sys.modules if name.startswith("helpers.exercises.")]:
        del sys.modules[name]
        delattr(exercises, name.rpartition(".")[2])


def saved():
    return json.loads((paths.ARTIFACTS / "progress.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("unsolved", [None, ...])
def test_an_untouched_exercise_prints_the_general_hint(capsys, unsolved):
    assert check("98.1", unsolved) is None
    assert capsys.readouterr().out == "98.1 not yet. Hint: Count the legs of a spider.\n"


def test_a_right_answer_prints_why(capsys):
    check("98.1", 8)
    assert capsys.readouterr().out == "98.1 correct. spiders have eight.\n"


def test_a_known_mistake_meets_its_own_hint(capsys):
    check("98.1", 6)
    assert capsys.readouterr().out == "98.1 not quite. Six is for insects.\n"


def test_a_hint_of_several_lines_becomes_one(capsys):
    check("98.2", "two lines")
    assert capsys.readouterr().out == "98.2 not quite. First. Second.\n"


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("no repr")


def weird_answers():
    import torch

    return {
        "str": "eight",
        "list": [8],
        "ndarray": np.array([8, 8]),
        "Tensor": torch.tensor([8, 8]),
        "Hostile": Hostile(),
        "type": int,
        "dict": {},
        "function": lambda: 1 / 0,
    }


def exits():
    raise SystemExit(3)


@pytest.mark.parametrize(
    "name", ["str", "list", "Hostile", "dict", "type", "ndarray", "Tensor", "function", "generator", "exit"]
)
def test_an_odd_answer_is_not_quite_and_never_a_traceback(capsys, name):
    odd = weird_answers() | {"generator": (i for i in ()), "exit": exits}
    check("98.1", odd[name])
    out, err = capsys.readouterr()
    assert out.startswith("98.1 not quite. ") and out.count("\n") == 1
    assert err == ""


def test_when_the_judge_stumbles_the_line_names_the_answers_type(capsys):
    check("98.1", "eight")
    assert capsys.readouterr().out == ("98.1 not quite. Count the legs of a spider. (Your answer is of type str.)\n")


def test_the_learners_own_exception_is_told_as_such(capsys):
    check("98.1", lambda: [][0])
    assert capsys.readouterr().out == (
        "98.1 not quite. Your function raised IndexError: list index out of range. Hint: Count the legs of a spider.\n"
    )


def test_nan_is_an_answer_like_any_other(capsys):
    check("98.1", float("nan"))
    assert capsys.readouterr().out == "98.1 not quite. nan is not the number.\n"


@pytest.mark.parametrize("verdict", ["true", "none", "blank"])
def test_only_Correct_counts_as_correct(capsys, verdict):
    check("98.2", verdict)
    assert capsys.readouterr().out == "98.2 not quite. Anything. (Your answer is of type str.)\n"
    assert saved() == {"98.2": "open"}


def test_an_unknown_id_names_the_existing_ones():
    with pytest.raises(ValueError, match=r"There is no exercise 98\.3.*notebook 98: 98\.1, 98\.2, 98\.10\.$"):
        check("98.3", 1)


def test_an_id_of_a_notebook_without_exercises_names_the_missing_file():
    with pytest.raises(ValueError, match=r"no exercise 97\.1.*helpers/exercises/nb97\.py is missing"):
        check("97.1", 1)


@pytest.mark.parametrize("wrong", [98.1, "legs", "", None])
def test_an_id_that_is_none_says_what_an_id_looks_like(wrong):
    with pytest.raises(ValueError, match='like "05.2"'):
        check(wrong, 1)


def test_a_duplicate_id_is_an_error_that_names_both_judges():
    exercise("98.7", hint="one")(test_nan_is_an_answer_like_any_other)
    with pytest.raises(ValueError, match=r"98\.7 is registered twice: by test_nan.* and weird_answers"):
        exercise("98.7", hint="two")(weird_answers)


@pytest.mark.parametrize("id", ["98", "9.1", "98.0", "98.x", "98.1 "])
def test_a_malformed_id_is_refused(id):
    with pytest.raises(ValueError, match="two digits, a dot"):
        exercise(id, hint="some")


def test_an_empty_hint_is_refused():
    with pytest.raises(ValueError, match="hint is empty"):
        exercise("98.7", hint=" ")


def test_an_exercise_in_the_wrong_module_is_refused(course):
    (course / "nb97.py").write_text(NB98, encoding="utf-8")
    with pytest.raises(ValueError, match=r"98\.1 stands in nb97\.py"):
        check("97.1", 1)


def test_a_module_that_fails_halfway_shows_the_same_error_again(course):
    (course / "nb97.py").write_text(NB98.replace("98.", "97.") + "\n1 / 0\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            check("97.1", 1)


def test_a_missing_import_of_the_module_is_not_taken_for_a_missing_module(course):
    (course / "nb97.py").write_text("import does_not_exist_at_all", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="does_not_exist_at_all"):
        check("97.1", 1)


def test_progress_is_saved_and_solved_stays_solved():
    check("98.1", None)
    assert saved() == {"98.1": "open"}
    check("98.1", 8)
    check("98.1", 6)
    check("98.2", "two lines")
    assert saved() == {"98.1": "solved", "98.2": "open"}
    assert [path.name for path in paths.ARTIFACTS.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"98.2": ["solved"]}'])
def test_a_damaged_progress_file_is_replaced(capsys, damage):
    paths.ARTIFACTS.mkdir()
    (paths.ARTIFACTS / "progress.json").write_bytes(damage)
    check("98.1", 8)
    assert capsys.readouterr().out == "98.1 correct. spiders have eight.\n"
    assert saved() == {"98.1": "solved"}


def test_a_progress_file_that_cannot_be_written_does_not_take_the_verdict_away(capsys):
    paths.ARTIFACTS.write_text("a file where the folder should be", encoding="utf-8")
    check("98.1", 8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "98.1 correct. spiders have eight."
    assert lines[1].startswith("Progress is not saved: ")


def test_progress_prints_solved_and_open_in_order(capsys):
    check("98.1", 8)
    capsys.readouterr()
    progress()
    assert capsys.readouterr().out == "notebook  solved  open\n98        1 of 3  98.2 98.10\n"


def test_progress_of_one_notebook_leaves_the_others_out(capsys, course):
    (course / "nb97.py").write_text(NB98.replace("98.", "97."), encoding="utf-8")
    for id in ("97.1", "97.10"):
        check(id, 8)
    capsys.readouterr()
    progress("97")
    assert capsys.readouterr().out == "notebook  solved  open\n97        2 of 3  97.2\n"


def test_ids_are_listed_in_numeric_order():
    assert checks.ids("98") == ["98.1", "98.2", "98.10"]
    assert checks.ids("97") == []


def test_correct_is_a_value():
    assert Correct("because") == Correct("because")
