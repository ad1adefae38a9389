"""Tiny notebooks and projects, built in code, on which the guards are tried: one that passes, then broken ones."""

import shutil

import nbformat

from helpers.paths import ROOT

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

JUDGES = """
from helpers.checks import Correct, exercise


@exercise("98.1", hint="Count the legs of a spider.")
def legs(answer):
    if answer == 8:
        return Correct("spiders have eight.")
    if answer == 6:
        return "Six is for insects."
    return "Ten is for crabs." if answer == 10 else "No animal has that many."


@exercise("98.2", hint="Look at a clock.")
def hours(answer):
    return Correct("a day and a night.") if answer == 24 else "That is half a day."


@exercise("98.3", hint="Look at a calendar.")
def months(answer):
    return Correct("January to December.") if answer == 12 else "There is one more."
"""

SOLUTIONS = '''"""Answers to the tiny notebook."""

# %% 98.1 solution
# eight, and two of them before
answer = 2 + 6
# %% 98.1 wrong: an insect
answer = 6
# %% 98.1 wrong: a crab
answer = 10

# %% 98.2 solution
def answer():
    return 24
answer = answer()
# %% 98.2 wrong: half of it
answer = 12

# %% 98.3 solution
answer = 12
# %% 98.3 wrong: counts from 0
answer = 11
'''

STEP = "import time\n\nfrom helpers.checks import check\n\ntime.sleep(0.6)\nprint('six times seven is', 6 * 7)"
DRAW = f"""from IPython.display import display

picture = "{PIXEL}"
display(
    {{"image/png": picture, "text/plain": "A pixel."}}, metadata={{"image/png": {{"alt": "A pixel."}}}}, raw=True
)"""


def markdown(source):
    return nbformat.v4.new_markdown_cell(source)


def code(source, *outputs, tags=()):
    """A code cell with outputs: a str stands for what was printed, anything else is an output."""
    outputs = [
        nbformat.v4.new_output("stream", name="stdout", text=out) if isinstance(out, str) else out for out in outputs
    ]
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"tags": list(tags)} if tags else {})


def picture(alt="A pixel.", text="A pixel."):
    return nbformat.v4.new_output(
        "display_data",
        data={"image/png": PIXEL, "text/plain": text},
        metadata={"image/png": {"alt": alt}} if alt else {},
    )


def exercise_cell(id, question, hint):
    source = f'# Exercise {id}: {question}\nanswer = None  # your turn\n\ncheck("{id}", answer)'
    return code(source, f"{id} not yet. Hint: {hint}\n", tags=["exercise"])


def cells():
    """The cells of a notebook that keeps every rule, by name, so that a test can break one of them."""
    return {
        "title": markdown("# 98 · Tiny\n\nIt keeps the rules."),
        "learn": markdown("## What you will learn\n\nTo multiply."),
        "before": markdown("## Before you start\n\n**Time:** about 2 s on two cores. It needs no artifacts."),
        "lesson": markdown("## Six times seven\n\nPredict: more than forty?"),
        "step": code(STEP, "six times seven is 42\n"),
        "figure": code(DRAW, picture()),
        "articles": markdown("## What the articles say / what we measured\n\n| They say | We see | So |\n|-|-|-|"),
        "exercises": markdown("## Exercises\n\nThree questions."),
        "98.1": exercise_cell("98.1", "how many legs?", "Count the legs of a spider."),
        "98.2": exercise_cell("98.2", "how many hours?", "Look at a clock."),
        "98.3": exercise_cell("98.3", "how many months?", "Look at a calendar."),
        "wrong": markdown("## What can go wrong\n\nNothing."),
        "have": markdown("## What you have now\n\n42."),
        "next": markdown("## Next\n\nNotebook 99."),
    }


def notebook(parts=None):
    """A notebook of the given parts (default: those of cells()), numbered as if it had been run."""
    nb = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nb.nbformat_minor = 5
    nb.cells = list((cells() if parts is None else parts).values())
    count = 0
    for place, cell in enumerate(nb.cells, 1):
        cell["id"] = f"tiny-{place:03}"
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
    return nb


def project(folder, nb=None, judges=JUDGES, solutions=SOLUTIONS):
    """A project in `folder` with one notebook, 98_tiny.ipynb; returns the folder.

    Of the helpers it has those that exercises need, so that a run is quick.
    """
    exercises = folder / "helpers" / "exercises"
    exercises.mkdir(parents=True)
    for name in ("paths.py", "checks.py", "exercises/__init__.py"):
        shutil.copy2(ROOT / "helpers" / name, folder / "helpers" / name)
    (folder / "helpers" / "__init__.py").write_text("", "utf-8")
    (exercises / "nb98.py").write_text(judges, "utf-8")
    (folder / "notebooks" / "solutions").mkdir(parents=True)
    (folder / "notebooks" / "solutions" / "98_tiny.py").write_text(solutions, "utf-8")
    (folder / "notebooks" / "98_tiny.ipynb").write_text(nbformat.v4.writes(nb or notebook()), "utf-8")
    return folder
