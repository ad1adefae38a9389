"""Are the committed notebooks fit to be committed, and does each rule of helpers.cli.hygiene bite?"""

import json

import nbformat
import pytest
import support
import tiny

from helpers.cli import hygiene
from helpers.paths import NOTEBOOKS

ALL = sorted(path.name for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
RECORDED = support.HERE / "recorded.json"


def test_there_are_notebooks():
    assert ALL


@pytest.mark.parametrize("name", ALL)
def test_the_notebook_keeps_the_rules(name):
    found = hygiene.problems(NOTEBOOKS / name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ALL)
def test_no_fewer_cells_are_compared_than_recorded(name):
    fault = support.compared_fault(NOTEBOOKS / name, RECORDED)
    assert fault is None, fault


def test_every_record_belongs_to_a_notebook():
    assert set(json.loads(RECORDED.read_text("utf-8"))) <= {name.removesuffix(".ipynb") for name in ALL}


# --- the record ------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_file(tmp_path):
    path = tmp_path / "98_tiny.ipynb"
    path.write_text(nbformat.v4.writes(tiny.notebook()), "utf-8")
    return path


def write(file, **numbers):
    file.write_text(json.dumps(numbers), "utf-8")
    return file


def test_fewer_compared_cells_than_recorded_fail(tiny_file, tmp_path):
    fault = support.compared_fault(tiny_file, write(tmp_path / "recorded.json", **{"98_tiny": 6}))
    assert fault == "98_tiny.ipynb has 5 cells that nbval compares, recorded were 6. Do not hide outputs."


def test_a_notebook_without_a_record_fails(tiny_file, tmp_path):
    fault = support.compared_fault(tiny_file, write(tmp_path / "recorded.json", other=6))
    assert fault == "98_tiny is not in recorded.json: run `python3 -m helpers render 98`."


def test_as_many_compared_cells_as_recorded_pass(tiny_file, tmp_path):
    assert support.compared_fault(tiny_file, write(tmp_path / "recorded.json", **{"98_tiny": 5})) is None


@pytest.mark.parametrize(("before", "after"), [({}, 5), ({"98_tiny": 3}, 5), ({"98_tiny": 9}, 9)])
def test_recording_only_raises_the_number(tiny_file, tmp_path, before, after):
    file = write(tmp_path / "recorded.json", other=2, **before)
    assert hygiene.record(tiny_file, file) == after
    assert json.loads(file.read_text("utf-8")) == {"other": 2, "98_tiny": after}


def test_recording_makes_a_missing_file(tiny_file, tmp_path):
    hygiene.record(tiny_file, tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text("utf-8")) == {"98_tiny": 5}


# --- the rules, each broken once -------------------------------------------------------------------------


def test_a_notebook_that_keeps_the_rules_has_no_problems(tiny_file):
    assert hygiene.problems(tiny_file) == []
    assert hygiene.problems(tiny.notebook()) == []


def html(text, kind="text/html"):
    return nbformat.v4.new_output("display_data", data={kind: text, "text/plain": "something"})


def printed(*outputs, **options):
    return tiny.code("print(1)", *outputs, **options)


def raised(evalue="no", traceback=("no",)):
    return nbformat.v4.new_output("error", ename="ValueError", evalue=evalue, traceback=list(traceback))


def set_count(nb):
    nb.cells[4].execution_count = 7


def unset_count(nb):
    nb.cells[4].execution_count = None


def double_id(nb):
    nb.cells[5]["id"] = nb.cells[4]["id"]


def no_id(nb):
    del nb.cells[5]["id"]


def other_kernel(nb):
    nb.metadata.kernelspec.name = "course"


def widget_state(nb):
    nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def older_format(nb):
    nb.nbformat_minor = 4


CELL_5 = "Cell 5 (tiny-005)"


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (set_count, f"{CELL_5} has execution count 7, expected 1."),
        (unset_count, f"{CELL_5} was not executed."),
        (double_id, "Cell 6 (tiny-005) has the id of an earlier cell."),
        (no_id, "It is not a valid notebook: 'id' is a required property"),
        (other_kernel, "The kernelspec is named 'course', expected 'python3'."),
        (widget_state, "The metadata holds the state of widgets; save without it."),
        (older_format, "The format is 4.4, expected 4.5."),
    ],
)
def test_a_broken_notebook_is_told(breaks, expected):
    nb = tiny.notebook()
    breaks(nb)
    assert hygiene.problems(nb) == [expected]


SHOWN = "print(1)"
STDERR = nbformat.v4.new_output("stream", name="stderr", text="careful\n")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (printed("1\n", STDERR), "printed to stderr."),
        (printed("1\n", raised()), "raised ValueError without the tag raises-exception."),
        (printed("1\n", tags=["raises-exception"]), "has the tag raises-exception and did not raise."),
        (printed("1\n", tags=["nbval-skip"]), "has the tag nbval-skip; no cell is skipped."),
        (printed("1\n", tags=["skip-execution"]), "has the tag skip-execution; no cell is skipped."),
        (
            printed("1\n", tags=["pytest-validate-ignore-output"]),
            "has the tag pytest-validate-ignore-output, expected only nbval-ignore-output, raises-exception, exercise.",
        ),
        (tiny.code("# NBVAL_SKIP\n1"), "has the comment NBVAL_SKIP, which goes past the tags; use a tag."),
        (
            tiny.code("1\n  ## PYTEST_VALIDATE_IGNORE_OUTPUT"),
            "has the comment PYTEST_VALIDATE_IGNORE_OUTPUT, which goes past the tags; use a tag.",
        ),
        (printed(tiny.picture(alt="")), "shows a figure without alt text; use plots.show(fig, alt=…)."),
        (printed(html("<p><img src='data:x'></p>")), "shows HTML with a picture that has no alt text or title."),
        (
            printed(html("<svg><path d='M0 0'/></svg>", "image/svg+xml")),
            "shows HTML with a picture that has no alt text or title.",
        ),
        (tiny.markdown("See ![](picture.png)"), "has a picture without alt text."),
        (printed("in /home/ann/x\n"), "has an absolute path in its output: /home/ann/x"),
        (printed("cwd=/root\n"), "has an absolute path in its output: /root"),
        (printed("['/tmp/x1/a']\n"), "has an absolute path in its output: /tmp/x1/a"),
        (printed("'/workspace/course/helpers'\n"), "has an absolute path in its output: /workspace/course/helpers"),
        (printed("wrote /Users/ann/a b\n"), "has an absolute path in its output: /Users/ann/a"),
        (printed("at C:\\Users\\ann\n"), "has an absolute path in its output: C:\\Users\\ann"),
        (printed("in /odd/place/convert.py\n"), "has an absolute path in its output: /odd/place/convert.py"),
        (printed(html("<td>/opt/conda/lib</td>")), "has an absolute path in its output: /opt/conda/lib"),
        (tiny.code("open('/home/ann/x')"), "has an absolute path in its source: /home/ann/x"),
        (tiny.markdown("It is in `/mnt/data/x`."), "has an absolute path in its source: /mnt/data/x"),
        (
            printed(raised(traceback=["File \x1b[32m/srv/x/a.py:3\x1b[0m"]), tags=["raises-exception"]),
            "has an absolute path in its traceback: /srv/x/a.py:3",
        ),
        (
            printed(raised(traceback=["File ~/course/a.py:3"]), tags=["raises-exception"]),
            "has an absolute path in its traceback: ~/course/a.py:3",
        ),
        (
            printed(html("<script src='https://cdn.example/x.js'></script>")),
            "loads from the web in its output: https://cdn.example/x.js",
        ),
        (
            printed(html('<img alt="a" src="//cdn.example/x.png">')),
            "loads from the web in its output: //cdn.example/x.png",
        ),
        (
            printed(html('<link rel="stylesheet" href="https://cdn.example/x.css">')),
            "loads from the web in its output: https://cdn.example/x.css",
        ),
        (tiny.markdown("![A chart](https://x.example/a.png)"), "loads from the web in its source: https://x.example/a.png"),
        (tiny.code("IFrame('https://x.example', 9, 9)"), "loads from the web in its source: https://x.example"),
    ],
)  # fmt: skip
def test_a_broken_cell_is_told(cell, expected):
    cells = tiny.cells()
    cells["step"] = cell
    assert hygiene.problems(tiny.notebook(cells)) == [f"{CELL_5} {expected}"]


@pytest.mark.parametrize(
    "fine",
    [
        "node '/cls/Hardmax' of /conv1/Conv and /root_block/Conv",
        "/proc/cpuinfo, /proc/self/status, /sys/devices/system/cpu, /dev/null",
        "https://example.org/home/ann/x and http://a.example/tmp/y.py",
        "artifacts/logs/convert.log, ../artifacts/x.onnx, ~/notes, 3/4, and/or, km/h",
        "s/home/x/y, {folder}/home/x, …/helpers/convert.py",
        "N: 3, ratio 1:2, 'x:\\n'",
        "</home> <br/> // comment",
        "see <a href='https://example.org'>there</a> or [there](https://example.org/x.png)",
        "<iframe src='http://127.0.0.1:8080/'></iframe> <iframe src='http://localhost:1/'></iframe>",
        "<img alt='A pixel' src='data:image/png;base64,AA//home/x'>",
        "<svg xmlns='http://www.w3.org/2000/svg'><title>A line</title><use href='#a'/></svg>",
    ],
)
def test_what_only_looks_like_a_path_or_a_load_passes(fine):
    cells = tiny.cells()
    cells["step"] = printed(fine + "\n", html(fine))
    cells["lesson"].source += "\n\n" + fine
    assert hygiene.problems(tiny.notebook(cells)) == []


def test_the_place_of_the_project_itself_is_an_absolute_path_whatever_it_is(monkeypatch):
    monkeypatch.setattr(hygiene.paths, "ROOT", hygiene.Path("/odd/place"))
    cells = tiny.cells()
    cells["step"] = printed("/odd/place\n")
    assert hygiene.problems(tiny.notebook(cells)) == [f"{CELL_5} has an absolute path in its output: /odd/place"]


def without(name):
    def edit(cells):
        del cells[name]

    return edit


def source(name, old, new):
    def edit(cells):
        assert old in cells[name].source
        cells[name].source = cells[name].source.replace(old, new)

    return edit


def move(name, before):
    def edit(cells):
        moved = cells.pop(name)
        items = list(cells.items())
        place = [key for key, _ in items].index(before)
        cells.clear()
        cells.update([*items[:place], (name, moved), *items[place:]])

    return edit


ORDER = (
    "The sections are not in the order What you will learn · Before you start · (lesson) · "
    "What the articles say / what we measured · Exercises · What can go wrong · What you have now · Next."
)
NO_TIME = "'## Before you start' has no line '**Time:** about N s on two cores' with N a whole number."


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (source("title", "# 98 · Tiny", "# Tiny"), "It must start with one title '# NN · …', found ['Tiny']."),
        (source("learn", "To mul", "# 98 · B\n\nTo mul"), "It must start with one title '# NN · …', found "
                                                          "['98 · Tiny', '98 · B']."),
        (source("title", "It keeps the rules.", ""), "There is no promise below the title: one sentence."),
        (without("learn"), "The section '## What you will learn' is missing."),
        (without("articles"), "The section '## What the articles say / what we measured' is missing."),
        (without("wrong"), "The section '## What can go wrong' is missing."),
        (without("next"), "The section '## Next' is missing."),
        (source("lesson", "Six times seven", "Next"), "The section '## Next' stands there twice."),
        (source("lesson", "## Six times seven", "### Six times seven"),
         "There is no section of the lesson itself between the opening and the closing ones."),
        (move("wrong", before="exercises"), ORDER),
        (move("next", before="have"), ORDER),
        (move("lesson", before="learn"), ORDER),
        (source("wrong", "\n\nNothing.", ""), "The section '## What can go wrong' is empty."),
        (source("before", "about 2 s", "2 s"), NO_TIME),
        (source("before", "about 2 s", "about 2.5 s"), NO_TIME),
        (source("before", "**Time:** about 2 s", "Time: about 2 s"), NO_TIME),
    ],
)  # fmt: skip
def test_a_broken_frame_is_told(edit, expected):
    cells = tiny.cells()
    edit(cells)
    assert expected in hygiene.problems(tiny.notebook(cells))


def test_headings_in_code_and_in_fences_are_none():
    cells = tiny.cells()
    cells["lesson"].source += "\n\n```python\n# 98 · no title\n## Next\n```"
    cells["step"].source += "\n# 98 · no title\n## Next"
    assert hygiene.problems(tiny.notebook(cells)) == []


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (without("98.2"), "It has 2 exercises, at least 3 are expected."),
        (source("98.2", "# Exercise 98.2:", "# Exercise:"), "Cell 10 (tiny-010) must start with '# Exercise 98.k: …'."),
        (source("98.2", "98.2", "97.2"), "Cell 10 (tiny-010) holds exercise 97.2 of another notebook."),
        (source("98.2", "98.2", "98.1"), "Cell 10 (tiny-010) holds exercise 98.1 once more."),
        (source("98.2", "check(", "print("),
         'Exercise 98.2 must call check("98.2", answer) once, found check of [].'),
        (source("98.2", 'check("98.2"', 'check("98.3"'),
         "Exercise 98.2 must call check(\"98.2\", answer) once, found check of ['98.3']."),
        (source("step", "import time", 'check("98.1", 3)'), f"{CELL_5} calls check() without the tag exercise."),
    ],
)  # fmt: skip
def test_a_broken_exercise_is_told(edit, expected):
    cells = tiny.cells()
    edit(cells)
    assert expected in hygiene.problems(tiny.notebook(cells))


def test_a_file_above_500_kB_is_told():
    cells = tiny.cells()
    cells["step"] = printed("é" * 250_000)
    (found,) = hygiene.problems(tiny.notebook(cells))
    assert found.startswith("The file has 50") and found.endswith(" bytes, at most 500,000 are allowed.")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"nbformat": 4, "nbformat_minor": 5}'])
def test_a_file_that_is_no_notebook_is_told(tmp_path, content):
    (tmp_path / "98_tiny.ipynb").write_bytes(content)
    (found,) = hygiene.problems(tmp_path / "98_tiny.ipynb")
    assert found.startswith("It is not a")


def test_the_title_bears_the_number_of_the_file(tiny_file):
    tiny_file = tiny_file.rename(tiny_file.with_name("97_tiny.ipynb"))
    assert hygiene.problems(tiny_file) == ["It must start with one title '# 97 · …', found ['98 · Tiny']."]


# --- what counts as compared -----------------------------------------------------------------------------

WIDGET = nbformat.v4.new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
BARE = nbformat.v4.new_output("display_data", data={"image/png": tiny.PIXEL})


@pytest.mark.parametrize(
    ("cell", "compared"),
    [
        (printed("1\n"), True),
        (printed(tiny.picture()), True),
        (printed(html("<b>1</b>")), True),
        (printed(raised(), tags=["raises-exception"]), True),
        (printed(tiny.picture(text="<Figure size 640x480 with 1 Axes>")), False),
        (printed(BARE), False),
        (printed(WIDGET), False),
        (printed(" \n"), False),
        (printed("1\n", tags=["nbval-ignore-output"]), False),
        (tiny.code("# NBVAL_IGNORE_OUTPUT\nprint(1)", "1\n"), False),
        (printed(), False),
    ],
)
def test_a_cell_counts_as_compared_when_nbval_looks_at_something_of_it(cell, compared):
    cell.execution_count = 1
    assert hygiene.compared_cells(nbformat.v4.new_notebook(cells=[cell])) == compared


def test_a_cell_that_was_not_executed_is_not_compared():
    assert hygiene.compared_cells(nbformat.v4.new_notebook(cells=[printed("1\n")])) == 0


def test_at_least_half_of_the_cells_with_outputs_are_compared():
    cells = tiny.cells()
    extra = {f"extra {n}": printed(f"{n}\n", tags=["nbval-ignore-output"]) for n in range(6)}
    assert hygiene.problems(tiny.notebook({**cells, **dict(list(extra.items())[:5])})) == []
    assert hygiene.problems(tiny.notebook({**cells, **extra})) == [
        "Only 5 of 11 cells with outputs are compared, at least half are expected."
    ]
