"""Is a notebook fit to be committed? Every rule of the course's notebooks, each broken one as a sentence.

    for sentence in problems("notebooks/05_convert.ipynb"):
        print(sentence)

Nothing is executed here: the rules are about the file. Which cells nbval compares is read from the same tags,
comments and output types that nbval 0.11 (without nbdime) looks at.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat

from helpers import paths

MAX_BYTES = 500_000
MIN_EXERCISES = 3
IGNORE, RAISES, EXERCISE = "nbval-ignore-output", "raises-exception", "exercise"

OPENING = ("What you will learn", "Before you start")
CLOSING = (
    "What the articles say / what we measured",
    "Exercises",
    "What can go wrong",
    "What you have now",
    "Next",
)

# Comments with which nbval can be told, past the tags, to skip or not to compare a cell.
NBVAL_COMMENTS = {
    "PYTEST_VALIDATE_IGNORE_OUTPUT",
    "NBVAL_IGNORE_OUTPUT",
    "NBVAL_CHECK_OUTPUT",
    "NBVAL_RAISES_EXCEPTION",
    "NBVAL_SKIP",
}
# Parts of an output that nbval does not compare.
NOT_COMPARED = {"application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg"}

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
TIME = re.compile(r"^\*\*Time:\*\* about (\d+) s\b", re.MULTILINE)
CHECK = re.compile(r"""\bcheck\(\s*["']([^"']*)["']""")

# An absolute path of some machine: below the folders where people, build machines and containers keep files,
# or with the ending of a file. A graph's node (/cls/Hardmax), /proc, /sys, /dev are not; the path of a URL, a
# relative path and {folder}/name have something before the slash.
_START = r"(?<![\w.~/:<*\\}\])%$…-])/"
_REST = r"[^\s\"'`<>)]*"
_ENDINGS = r"py|ipynb|onnx|mnn|pt|so|dylib|gz|json|log|txt"
PATHS = (
    re.compile(
        _START + r"(?:home|Users|tmp|work|workspaces?|private|mnt|media|opt|srv|builds?|scratch|Volumes"
        r"|content|kaggle|__w|var/(?:tmp|folders|lib)|usr/(?:lib|share|local/lib)|nix/store)/[\w.@+{-]" + _REST
    ),
    re.compile(_START + r"root(?![\w-])" + _REST),
    re.compile(_START + rf"(?!(?:proc|sys|dev)/)(?:[\w.@+-]+/)+[\w.@+-]+\.(?:{_ENDINGS})\b"),
    re.compile(r"\bfile:/{1,3}\w" + _REST),
    re.compile(r"(?<!\w)[A-Za-z]:(?:\\{1,2}|/)(?:Users|Windows|Program|Temp|Documents|Python)" + _REST),
)
HOME_IN_TRACEBACK = re.compile(r"(?<!\w)~/[\w.-]" + _REST)

# What a browser fetches without being asked, in HTML, SVG, Markdown and in strings of code. Links are fine.
WEB = r"(?:https?:)?//(?!\{|localhost\b|127\.\d|\[::1\])[^\s\"'`<>)]+"
LOADS = (
    re.compile(rf"""\b(?:src|srcset|poster|data)\s*=\s*\\?["']?({WEB})""", re.IGNORECASE),
    re.compile(rf"""<link\b[^>]*\bhref\s*=\s*\\?["']?({WEB})""", re.IGNORECASE),
    re.compile(rf"""<(?:image|use)\b[^>]*\bhref\s*=\s*\\?["']?({WEB})""", re.IGNORECASE),
    re.compile(rf"""\burl\(\s*\\?["']?({WEB})""", re.IGNORECASE),
    re.compile(rf"""@import\s+\\?["']({WEB})""", re.IGNORECASE),
    re.compile(rf"""\b(?:import|from|import\(|fetch\(|importScripts\()\s*\\?["'`]({WEB})"""),
    re.compile(rf"""!\[[^\]]*\]\(\s*<?({WEB})"""),
    re.compile(rf"""\b(?:IFrame|Image|SVG|Video|Audio|Javascript)\(\s*(?:url\s*=\s*)?[fr]?["']({WEB})"""),
)


def problems(notebook):
    """The sentences that say what is wrong; empty when nothing is.

    notebook: path of an .ipynb file, or a notebook as nbformat reads it. Raises OSError when the file can't
    be read; a file that is no notebook is a problem, not an exception.
    """
    if isinstance(notebook, (str, Path)):
        content, number = Path(notebook).read_bytes(), re.match(r"\d\d(?=_)|", Path(notebook).name)[0]
    else:
        content, number = nbformat.v4.writes(notebook).encode("utf-8"), ""
    try:
        # Not nbformat.read(): it mends missing and doubled ids silently.
        nb = nbformat.v4.reads(content.decode("utf-8"))
        version = f"{nb.nbformat}.{nb.nbformat_minor}"
    except Exception as error:
        return [f"It is not a notebook: {error}."]
    if version != "4.5":
        return [f"The format is {version}, expected 4.5."]
    invalid = next(iter(nbformat.validator.iter_validate(nb)), None)
    if invalid:
        return [f"It is not a valid notebook: {str(invalid).splitlines()[0]}"]

    found = []
    if len(content) > MAX_BYTES:
        found.append(f"The file has {len(content):,} bytes, at most {MAX_BYTES:,} are allowed.")
    found += _metadata(nb)
    found += _frame(nb, number)
    found += _ids(nb)
    found += _execution(nb)
    found += _tags(nb)
    found += _exercises(nb)
    found += _figures(nb)
    found += _places(nb)
    found += _comparison(nb)
    return found


def compared_cells(nb):
    """How many code cells have an output that nbval compares."""
    return sum(_is_compared(cell) for cell in _code(nb))


def stated_seconds(nb):
    """The N of the line `**Time:** about N s`, or None when there is no such line."""
    for cell in nb.cells:
        match = cell.cell_type == "markdown" and TIME.search(cell.source)
        if match:
            return int(match[1])
    return None


def record(path, file=None):
    """Raise a notebook's recorded number of compared cells to what it has now; returns the recorded number.

    A number never sinks by itself: whoever wants fewer compared cells edits tests/notebooks/recorded.json.
    """
    file = Path(file) if file else paths.ROOT / "tests" / "notebooks" / "recorded.json"
    path = Path(path)
    numbers = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    now = compared_cells(nbformat.v4.reads(path.read_text(encoding="utf-8")))
    if now > numbers.get(path.stem, -1):
        numbers[path.stem] = now
        paths.write_text(file, json.dumps(numbers, indent=2, sort_keys=True) + "\n")
    return numbers[path.stem]


def _code(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def _tagged(cell):
    return cell.metadata.get("tags", [])


def _named(nb, kind=None):
    """(name for sentences, cell) of every cell or every cell of one type; counted from 1 over all cells."""
    for place, cell in enumerate(nb.cells, 1):
        if kind is None or cell.cell_type == kind:
            yield f"Cell {place} ({cell.id})", cell


def _metadata(nb):
    kernel = nb.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"The kernelspec is named {kernel!r}, expected 'python3'."
    if "widgets" in nb.metadata:
        yield "The metadata holds the state of widgets; save without it."


# --- frame ---------------------------------------------------------------------------------------------


def _headings(nb):
    """[(level, title, text of the section)] in order; code and outputs count as text of their section."""
    sections = []
    for cell in nb.cells:
        if cell.cell_type == "code":
            if sections:
                sections[-1][2].append(cell.source)
            continue
        fenced = False
        for line in cell.source.splitlines():
            fenced ^= line.lstrip().startswith("```")
            heading = re.match(r"(##?)\s+(.*?)\s*$", line)
            if heading and not fenced:
                sections.append((len(heading[1]), heading[2], []))
            elif sections:
                sections[-1][2].append(line)
    return [(level, title, "\n".join(lines).strip()) for level, title, lines in sections]


def _frame(nb, number):
    headings = _headings(nb)
    titles = [title for level, title, _ in headings if level == 1]
    pattern = rf"{number or '[0-9][0-9]'} · \S.*"
    starts = bool(nb.cells) and nb.cells[0].cell_type == "markdown" and nb.cells[0].source.startswith("# ")
    if not starts or len(titles) != 1 or not re.fullmatch(pattern, titles[0]):
        yield f"It must start with one title '# {number or 'NN'} · …', found {titles}."
    elif not headings[0][2]:
        yield "There is no promise below the title: one sentence."
    sections = [title for level, title, _ in headings if level == 2]
    missing = [title for title in OPENING + CLOSING if title not in sections]
    for title in missing:
        yield f"The section '## {title}' is missing."
    for title in sorted({title for title in sections if sections.count(title) > 1}):
        yield f"The section '## {title}' stands there twice."
    if not missing:
        lesson = sections[len(OPENING) : -len(CLOSING)]
        if tuple(sections) != OPENING + tuple(lesson) + CLOSING:
            order = " · ".join((*OPENING, "(lesson)", *CLOSING))
            yield f"The sections are not in the order {order}."
        elif not lesson:
            yield "There is no section of the lesson itself between the opening and the closing ones."
    for level, title, text in headings:
        if level == 2 and not text:
            yield f"The section '## {title}' is empty."
    before = next((text for level, title, text in headings if (level, title) == (2, OPENING[1])), "")
    if not TIME.search(before):
        yield f"'## {OPENING[1]}' has no line '**Time:** about N s on two cores' with N a whole number."


# --- cells ---------------------------------------------------------------------------------------------


def _ids(nb):
    seen = set()
    for name, cell in _named(nb):
        if cell.id in seen:
            yield f"{name} has the id of an earlier cell."
        seen.add(cell.id)


def _execution(nb):
    for expected, (name, cell) in enumerate(_named(nb, "code"), 1):
        if cell.execution_count is None:
            yield f"{name} was not executed."
        elif cell.execution_count != expected:
            yield f"{name} has execution count {cell.execution_count}, expected {expected}."
        if any(out.output_type == "stream" and out.name == "stderr" for out in cell.outputs):
            yield f"{name} printed to stderr."
        errors = [out for out in cell.outputs if out.output_type == "error"]
        if errors and RAISES not in _tagged(cell):
            yield f"{name} raised {errors[0].ename} without the tag {RAISES}."
        if RAISES in _tagged(cell) and not errors:
            yield f"{name} has the tag {RAISES} and did not raise."


def _tags(nb):
    for name, cell in _named(nb):
        tags = _tagged(cell)
        for tag in tags:
            if "skip" in tag.lower():
                yield f"{name} has the tag {tag}; no cell is skipped."
            elif tag not in (IGNORE, RAISES, EXERCISE):
                yield f"{name} has the tag {tag}, expected only {IGNORE}, {RAISES}, {EXERCISE}."
        if cell.cell_type != "code":
            continue
        for marker in _comment_markers(cell):
            yield f"{name} has the comment {marker}, which goes past the tags; use a tag."


def _comment_markers(cell):
    lines = (line.strip() for line in cell.source.splitlines())
    comments = (line.lstrip("#").strip() for line in lines if line.startswith("#"))
    return [comment for comment in comments if comment in NBVAL_COMMENTS]


def _exercises(nb):
    titles = (re.match(r"# (\d\d) ", cell.source) for _, cell in _named(nb, "markdown"))
    number = next((title[1] for title in titles if title), "NN")
    seen = []
    for name, cell in _named(nb, "code"):
        checks = CHECK.findall(cell.source)
        if EXERCISE not in _tagged(cell):
            if checks:
                yield f"{name} calls check() without the tag {EXERCISE}."
            continue
        header = re.match(r"# Exercise (\d\d\.[1-9]\d*): \S", cell.source)
        if not header:
            yield f"{name} must start with '# Exercise {number}.k: …'."
            continue
        id = header[1]
        if not id.startswith(f"{number}."):
            yield f"{name} holds exercise {id} of another notebook."
        if id in seen:
            yield f"{name} holds exercise {id} once more."
        if checks != [id]:
            yield f'Exercise {id} must call check("{id}", answer) once, found check of {checks}.'
        seen.append(id)
    if len(seen) < MIN_EXERCISES:
        yield f"It has {len(seen)} exercises, at least {MIN_EXERCISES} are expected."


# --- outputs -------------------------------------------------------------------------------------------


def _compared_texts(output):
    """What nbval compares of one output, without what is the same for every picture."""
    if output.output_type == "stream":
        return [output.text]
    if output.output_type == "error":
        return [output.ename, output.evalue]
    return [value for kind, value in output.data.items() if kind not in NOT_COMPARED]


def _is_compared(cell):
    marks = [mark.lower().replace("_", "-") for mark in (*_tagged(cell), *_comment_markers(cell))]
    if cell.execution_count is None or any("ignore" in mark or "skip" in mark for mark in marks):
        return False
    texts = [str(text).strip() for output in cell.outputs for text in _compared_texts(output)]
    return any(text and not text.startswith("<Figure size") for text in texts)


def _comparison(nb):
    producing = sum(bool(cell.outputs) for cell in _code(nb))
    compared = compared_cells(nb)
    if 2 * compared < producing:
        yield f"Only {compared} of {producing} cells with outputs are compared, at least half are expected."


class _Pictures(HTMLParser):
    """Counts the <img> without alt and the <svg> without a title or label."""

    def __init__(self):
        super().__init__()
        self.nameless, self._svg = 0, None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "img" and not (attributes.get("alt") or "").strip():
            self.nameless += 1
        if tag == "svg" and self._svg is None:
            label = (attributes.get("aria-label") or "").strip()
            self._svg = bool(label) or attributes.get("aria-hidden") == "true"
        if tag == "title" and self._svg is False:
            self._svg = True

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag == "svg" and self._svg is not None:
            self.nameless += not self._svg
            self._svg = None


def _nameless_pictures(html):
    parser = _Pictures()
    parser.feed(html)
    parser.close()
    return parser.nameless


def _figures(nb):
    for name, cell in _named(nb, "code"):
        for output in cell.outputs:
            data, metadata = output.get("data", {}), output.get("metadata", {})
            for kind in ("image/png", "image/jpeg", "image/gif"):
                if kind in data and not str(metadata.get(kind, {}).get("alt", "")).strip():
                    yield f"{name} shows a figure without alt text; use plots.show(fig, alt=…)."
            if any(_nameless_pictures(data.get(kind, "")) for kind in ("text/html", "image/svg+xml")):
                yield f"{name} shows HTML with a picture that has no alt text or title."
    for name, cell in _named(nb, "markdown"):
        if re.search(r"!\[\s*\]\(", cell.source) or _nameless_pictures(cell.source):
            yield f"{name} has a picture without alt text."


def _texts(cell):
    """(where, text) of everything in a cell that a reader or a browser sees; pictures' bytes left out."""
    yield "source", cell.source
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield "output", output.text
        elif output.output_type == "error":
            yield "traceback", "\n".join([output.evalue, *output.traceback])
        else:
            for kind, value in output.data.items():
                if kind.startswith("image/") and kind != "image/svg+xml":
                    continue
                yield "output", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _places(nb):
    """Paths of a machine, and what is loaded from the web."""
    here = str(paths.ROOT) if len(paths.ROOT.parts) > 2 else None  # "/course" may be a graph's node
    for name, cell in _named(nb):
        seen = set()
        for where, text in _texts(cell):
            text = ANSI.sub("", text)
            hits = [match[0] for pattern in PATHS for match in pattern.finditer(text)]
            hits += [here] if here and here in text else []
            if where == "traceback":
                hits += [match[0] for match in HOME_IN_TRACEBACK.finditer(text)]
            if hits and where not in seen:
                yield f"{name} has an absolute path in its {where}: {hits[0]}"
                seen.add(where)
            loads = [match[1] for pattern in LOADS for match in pattern.finditer(text)]
            if loads and f"web {where}" not in seen:
                yield f"{name} loads from the web in its {where}: {loads[0]}"
                seen.add(f"web {where}")
