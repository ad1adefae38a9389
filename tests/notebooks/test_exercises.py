"""Every exercise tried: untouched, with its typical wrong answers, with its public solution."""

import pytest
import solutions
import support
import tiny

from helpers import checks
from helpers.paths import NOTEBOOKS, ROOT

pytestmark = pytest.mark.notebooks
ALL = sorted(path.name for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def test_there_are_notebooks():
    assert ALL


@pytest.mark.parametrize("name", ALL)
def test_wrong_answers_are_refused_each_with_its_hint_and_solutions_accepted(name, variables):
    faults = support.exercise_faults(ROOT, name, variables)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ALL)
def test_every_registered_exercise_stands_in_its_notebook(name):
    nb = support.read(NOTEBOOKS / name)
    assert solutions.exercise_ids(nb) == checks.ids(name[:2])


# --- do these guards bite? -------------------------------------------------------------------------------


def faults_of(folder, **broken):
    return support.exercise_faults(tiny.project(folder, **broken), "98_tiny.ipynb")


def replaced(text, old, new):
    assert text.count(old) == 1
    return text.replace(old, new)


def test_exercises_that_keep_the_rules_have_no_faults(tmp_path):
    assert faults_of(tmp_path) == []


@pytest.fixture(scope="module")
def lax(tmp_path_factory):
    """Faults of three exercises: one accepts everything, one has a single hint, one refuses its solution."""
    judges = tiny.JUDGES
    judges = replaced(judges, "if answer == 8:", "if True:")
    judges = replaced(judges, 'else "That is half a day."', 'else "Look at a clock."')
    judges = replaced(judges, "if answer == 12", "if answer == 13")
    return faults_of(tmp_path_factory.mktemp("lax"), judges=judges)


def test_a_check_that_accepts_everything_fails(lax):
    for mistake in ("an insect", "a crab"):
        assert any(f.startswith(f"Exercise 98.1 does not refuse the wrong answer '{mistake}': ") for f in lax)


def test_a_wrong_answer_met_by_the_general_hint_fails(lax):
    assert "Exercise 98.2 meets the wrong answer 'half of it' with the general hint only." in lax


def test_a_solution_that_is_refused_fails(lax):
    assert any(f.startswith("Exercise 98.3 does not accept its solution: ") for f in lax)
    assert "Exercise 98.3 is 'open' in progress.json, expected 'solved'." in lax


@pytest.fixture(scope="module")
def clumsy(tmp_path_factory):
    """Faults of a notebook: one hint for two mistakes, a judge that stumbles, an exercise that says too much."""
    judges = replaced(tiny.JUDGES, "Ten is for crabs.", "Six is for insects.")
    judges = replaced(judges, 'answer == 24 else "That is half a day."', "answer == 24 else answer.hours")
    cells = tiny.cells()
    cells["98.3"].source += "\nprint('Have a look at the solutions.')"
    return faults_of(tmp_path_factory.mktemp("clumsy"), judges=judges, nb=tiny.notebook(cells))


def test_the_same_hint_for_two_mistakes_fails(clumsy):
    assert "Exercise 98.1 meets 'a crab' with the same hint as 'an insect'." in clumsy


def test_a_judge_that_stumbles_over_a_wrong_answer_fails(clumsy):
    assert "Exercise 98.2 meets the wrong answer 'half of it' with the general hint only." in clumsy


def test_an_untouched_exercise_that_prints_more_than_its_line_fails(clumsy):
    assert any(f.startswith("Exercise 98.3, untouched, must print one line '98.3 not yet. Hint: …'") for f in clumsy)


def test_a_check_that_ends_in_a_traceback_fails(tmp_path):
    cells = tiny.cells()
    cells["98.2"].source = cells["98.2"].source.replace('check("98.2"', 'check("98.7"')
    faults = faults_of(tmp_path, nb=tiny.notebook(cells))
    assert any("It stopped at an error." in f and "There is no exercise 98.7" in f for f in faults)


def test_the_network_is_watched_here_too(tmp_path):
    spy = """import urllib.request
try:
    urllib.request.urlopen("http://example.invalid")
except OSError:
    pass
"""
    faults = faults_of(tmp_path, solutions=replaced(tiny.SOLUTIONS, "answer = 2 + 6", spy + "answer = 8"))
    assert faults == ["Somebody tried to reach example.invalid; the course works without the network."]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# %% 98.3 solution\nanswer = 12\n", "", "Exercise 98.3 has no solution."),
        ("# %% 98.3 wrong: counts from 0\nanswer = 11\n", "", "Exercise 98.3 has no wrong answer"),
        ("98.3 wrong: counts", "98.4 wrong: counts", "Exercise 98.3 has no wrong answer"),
        ("# %% 98.1 solution", "# %% 98.4 solution\nanswer = 1\n# %% 98.1 solution", "answer to exercise 98.4, which"),
        ("# %% 98.1 wrong: an insect", "# %% 98.1 wrong:", "98_tiny.py:6: expected '# %% NN.k solution' or"),
        ("98.1 wrong: an insect", "98.1 wrong: a crab", "98.1 wrong: a crab stands there twice."),
        ("# %% 98.1 wrong: an insect", "# %% 98.1 solution", "98.1 solution stands there twice."),
        ("answer = 11", "anwser = 11", "98.3 wrong: counts from 0 does not set `answer`."),
        ("answer = 11", "answer = (11", "98.3 wrong: counts from 0 is not Python"),
        ('"""Answers to the tiny notebook."""', "import os", "there is code before the first section."),
    ],
)  # fmt: skip
def test_a_faulty_file_of_solutions_is_told_before_anything_runs(tmp_path, old, new, expected):
    (fault,) = faults_of(tmp_path, solutions=replaced(tiny.SOLUTIONS, old, new))
    assert expected in fault


def test_a_missing_file_of_solutions_is_named(tmp_path):
    project = tiny.project(tmp_path)
    (project / "notebooks" / "solutions" / "98_tiny.py").unlink()
    (fault,) = support.exercise_faults(project, "98_tiny.ipynb")
    assert fault.startswith("solutions/98_tiny.py is missing")
