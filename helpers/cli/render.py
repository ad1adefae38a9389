"""`render`: re-execute notebooks in place, in the one form in which they are committed."""

import re
import site
import sys
import sysconfig
from pathlib import Path

import nbformat

from helpers import paths
from helpers.cli import hygiene, kernel, notebooks
from helpers.cli.execute import clean, execute


def main(options, _rest):
    kernel.use_this_python()
    failures = [path.stem for path in notebooks.select(options.numbers, paths.NOTEBOOKS) if not render(path)]
    if failures:
        print(f"\nNot fit to be committed: {', '.join(failures)}")
    return 1 if failures else 0


def render(path):
    """Execute and save the notebook at `path`; returns whether it may be committed. A failing one is left alone.

    A saved notebook that breaks a rule of the house has its problems printed. The number of cells that nbval compares
    is recorded (see hygiene.record) only when there are none.
    """
    execution = execute(path)
    if execution.error:
        print(f"{path.stem}: failed and left as it was\n{execution.error}")
        return False
    paths.write_text(path, nbformat.writes(normal(execution.nb)) + "\n")
    problems = hygiene.problems(path)
    for problem in problems:
        print(f"{path.stem}: {problem}")
    if not problems:
        stated = hygiene.stated_seconds(execution.nb)
        print(
            f"{path.stem}: saved, took {execution.seconds:.1f} s and states about {stated} s, "
            f"{hygiene.record(path)} compared cells"
        )
    return not problems


def normal(nb):
    """Take out of an executed notebook what differs from run to run or machine to machine and says nothing."""
    outputs = [cell.outputs for cell in nb.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in nb.cells if cell.cell_type == "code"]
    clean(nb)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = outputs.pop(0), counts.pop(0)
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = [without_places(line) for line in output.traceback]
                if "data" in output:  # the state it refers to is not kept; text/plain beside it is what a reader sees
                    output.data.pop("application/vnd.jupyter.widget-view+json", None)
    return nb


def without_places(text):
    """A traceback's text with file names relative to the project, to site-packages or to the standard library."""
    libraries = [*site.getsitepackages(), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    folders = sorted({*libraries, str(paths.ROOT), sys.prefix}, key=len, reverse=True)
    for folder in folders:
        shown = [folder]
        if Path(folder).is_relative_to(Path.home()):  # IPython writes ~ for it
            shown.append(str(Path("~") / Path(folder).relative_to(Path.home())))
        for name in shown:
            text = re.sub(re.escape(name) + r"[/\\]", "", text)
    return text
