"""The recorded answers to a notebook's exercises: read, put into the notebook, judged after the run.

notebooks/solutions/05_convert.py has sections in percent format:

    # %% 05.2 solution
    answer = mnn.stat().st_size - 4 * parameters
    # %% 05.2 wrong: counts BatchNorm's statistics too
    answer = …
"""

import ast
import copy
import re
from dataclasses import dataclass, field

import nbformat

SECTION = re.compile(r"# %% (\d\d\.[1-9]\d*) (?:(solution)|wrong: (\S.*?))\s*$")
HEADER = re.compile(r"# Exercise (\d\d\.[1-9]\d*):")


class SolutionError(ValueError):
    """A file of solutions that can't be used; the message names file, exercise and what is expected."""


@dataclass
class Answers:
    solution: str | None = None
    wrong: dict = field(default_factory=dict)  # {what is wrong with it: code}


def read(path):
    """{exercise id: Answers} of one file. Raises SolutionError."""
    if not path.exists():
        raise SolutionError(f"solutions/{path.name} is missing: every notebook's exercises have public solutions.")
    return parse(path.read_text("utf-8"), f"solutions/{path.name}")


def parse(text, name):
    """{exercise id: Answers} of the text of a file called `name`. Raises SolutionError."""
    preamble, sections = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# %%"):
            match = SECTION.match(line)
            if not match:
                raise SolutionError(
                    f"{name}:{number}: expected '# %% NN.k solution' or '# %% NN.k wrong: why', found {line!r}."
                )
            sections.append((match[1], match[3], []))
        else:
            (sections[-1][2] if sections else preamble).append(line)
    if any(not isinstance(node, ast.Expr) for node in ast.parse("\n".join(preamble)).body):
        raise SolutionError(f"{name}: there is code before the first section.")
    answers = {}
    for id, mistake, lines in sections:
        code, what = "\n".join(lines).strip(), f"wrong: {mistake}" if mistake else "solution"
        if not _sets_answer(code, f"{name}: {id} {what}"):
            raise SolutionError(f"{name}: {id} {what} does not set `answer`.")
        of = answers.setdefault(id, Answers())
        if mistake in of.wrong or (mistake is None and of.solution is not None):
            raise SolutionError(f"{name}: {id} {what} stands there twice.")
        if mistake is None:
            of.solution = code
        else:
            of.wrong[mistake] = code
    return answers


def _sets_answer(code, where):
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError as error:
        raise SolutionError(f"{where} is not Python: {error}.") from None
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return "answer" in names


def exercise_ids(nb):
    """The ids of a notebook's exercise cells, in order."""
    return [id for cell in nb.cells if (id := _exercise_id(cell))]


def _exercise_id(cell):
    if cell.cell_type != "code" or "exercise" not in cell.metadata.get("tags", []):
        return None
    header = HEADER.match(cell.source)
    if not header:
        raise SolutionError(f"An exercise cell does not start with '# Exercise NN.k:': {cell.source[:60]!r}.")
    return header[1]


def inject(nb, answers):
    """A copy of a notebook with cells after each exercise: its wrong answers, then its solution, each checked.

    Raises SolutionError when an exercise has no solution or no wrong answer, or an answer has no exercise.
    """
    ids = exercise_ids(nb)
    for id in ids:
        if id not in answers or answers[id].solution is None:
            raise SolutionError(f"Exercise {id} has no solution.")
        if not answers[id].wrong:
            raise SolutionError(f"Exercise {id} has no wrong answer that it must refuse.")
    for id in answers:
        if id not in ids:
            raise SolutionError(f"There is an answer to exercise {id}, which the notebook does not have.")
    tried = copy.deepcopy(nb)
    tried.cells = []
    for cell in copy.deepcopy(nb.cells):
        tried.cells.append(cell)
        if id := _exercise_id(cell):
            cell.metadata["course"] = {"exercise": id, "kind": "untouched"}
            tried.cells += [_try(id, "wrong", code, mistake) for mistake, code in answers[id].wrong.items()]
            tried.cells.append(_try(id, "solution", answers[id].solution))
    return tried


def _try(id, kind, code, mistake=""):
    cell = nbformat.v4.new_code_cell(f'{code}\n\ncheck("{id}", answer)')
    cell.metadata["course"] = {"exercise": id, "kind": kind, "mistake": mistake}
    return cell


def judge(nb):
    """What is wrong with the lines that the checks printed in an executed notebook made by inject(); sentences."""
    general, hints = {}, {}
    for cell in nb.cells:
        course = cell.metadata.get("course")
        if not course or cell.execution_count is None:  # not reached: the run stopped before, and says so itself
            continue
        id, kind = course["exercise"], course["kind"]
        printed = "".join(out.text for out in cell.outputs if out.output_type == "stream").splitlines()
        lines = [line for line in printed if line.startswith(f"{id} ")]
        if kind == "untouched":
            match = re.fullmatch(rf"{re.escape(id)} not yet\. Hint: (\S.*)", printed[0] if printed else "")
            if not match or len(printed) != 1 or len(cell.outputs) != 1:
                yield f"Exercise {id}, untouched, must print one line '{id} not yet. Hint: …', found {_seen(cell)}"
            else:
                general[id] = match[1]
        elif kind == "solution":
            if len(lines) != 1 or not re.fullmatch(rf"{re.escape(id)} correct\. \S.*", lines[0]):
                yield f"Exercise {id} does not accept its solution: {_seen(cell)}"
        else:
            mistake = course["mistake"]
            match = re.fullmatch(rf"{re.escape(id)} not quite\. (\S.*)", lines[0] if len(lines) == 1 else "")
            if not match:
                yield f"Exercise {id} does not refuse the wrong answer '{mistake}': {_seen(cell)}"
            elif id in general and match[1].startswith(general[id]):
                yield f"Exercise {id} meets the wrong answer '{mistake}' with the general hint only."
            elif match[1] in hints.setdefault(id, {}):
                other = hints[id][match[1]]
                yield f"Exercise {id} meets '{mistake}' with the same hint as '{other}'."
            else:
                hints[id][match[1]] = mistake


def _seen(cell):
    texts = [out.get("text") or out.get("evalue") or str(out.get("data", "")) for out in cell.outputs]
    return repr("\n".join(texts)[:500])
