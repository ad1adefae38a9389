"""run executes notebooks in this interpreter, tells what happened, and writes pages that need no network."""

import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser

import nbformat
import psutil
import pytest
from nbformat import v4

from helpers import paths
from helpers.cli import CommandError, execute, html, kernel, notebooks, run

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(autouse=True)
def course(tmp_path, monkeypatch):
    """A folder for notebooks, with artifacts of its own beside it."""
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setenv("JUPYTER_PATH", "")
    kernel.use_this_python()
    folder = tmp_path / "notebooks"
    folder.mkdir()
    return folder


def write(folder, name, *cells):
    """Save a notebook; a str is a code cell, a (tag, str) one with a tag, a str that starts with # a Markdown cell."""
    nb = v4.new_notebook()
    for index, cell in enumerate(cells):
        tags, source = (cell[:1], cell[1]) if isinstance(cell, tuple) else ((), cell)
        new = v4.new_markdown_cell if source.startswith("# ") else v4.new_code_cell
        nb.cells.append(new(source, id=f"c{index}", metadata={"tags": list(tags)} if tags else {}))
    path = folder / f"{name}.ipynb"
    nbformat.write(nb, path)
    return path


def test_notebooks_run_in_this_interpreter_in_their_folder_and_are_counted(course):
    path = write(
        course,
        "01_first",
        "# 01 · First",
        "import sys, os; print(sys.executable)\nprint(os.getcwd())",
        "import helpers.paths",
        "print('01.1 correct. Why.')\nprint('01.2 not yet. Hint: 01.9 correct')\nprint('01.3 not quite. Hint')",
    )
    before = path.read_bytes()
    execution = execute.execute(path)
    assert execution.error is None
    assert execution.nb.cells[1].outputs[0].text == f"{sys.executable}\n{course}\n"
    assert (execution.cells, execution.solved, execution.exercises) == (3, 1, 3)
    assert path.read_bytes() == before


def test_peak_memory_is_the_kernels(course):
    hungry = "import time\nheld = bytearray(300_000_000)\nheld[::4096] = b'x' * len(held[::4096])\ntime.sleep(0.5)"
    small = execute.execute(write(course, "01_small", "import time\ntime.sleep(0.5)")).peak
    large = execute.execute(write(course, "02_large", hungry, "del held")).peak
    assert 20e6 < small < 250e6
    assert 280e6 < large - small < 400e6


def test_all_notebooks_run_in_order_with_a_table_and_pages(course, capsys):
    second = write(course, "02_second", "# 02 · Second & last", "print('02.1 correct. Why.')")
    first = write(course, "01_first", "# 01 · First", "1 + 1")
    assert run.run(notebooks.select([], course)) == 0
    output = capsys.readouterr().out
    table = output.splitlines()
    rows = [re.split(r"\s{2,}", line) for line in table if line.startswith(("01_", "02_", "notebook"))][-3:]
    assert rows[0] == list(run.HEADER)
    assert [row[0] for row in rows[1:]] == [first.stem, second.stem]
    assert rows[2][3:] == ["1", "1 of 1 solved", "ok"] and re.fullmatch(r"\d+\.\d", rows[2][1])
    assert int(rows[2][2].removesuffix(" MB")) > 20
    index = (paths.ARTIFACTS / "html/index.html").read_text()
    assert 'href="01_first.html"' in index and "02 · Second &amp; last" in index
    assert (paths.ARTIFACTS / "html/02_second.html").exists()


def test_failing_notebook_stops_the_run_with_cell_error_and_path(course, capsys):
    write(course, "01_good", "1 + 1")
    bad = write(
        course, "02_bad", "# 02 · Bad", "good = 1", "wanted = 3\nraise ValueError('no such digit')", "after = 1"
    )
    write(course, "03_never", "1 + 1")
    assert run.run(notebooks.select([], course)) == 1
    output = capsys.readouterr().out
    assert "cell 3 of 4 (code cell 2):\n    wanted = 3\n    raise ValueError('no such digit')\n" in output
    assert "ValueError: no such digit" in output and str(bad) in output
    assert re.search(r"^01_good .* ok$", output, re.MULTILINE)
    assert re.search(r"^02_bad .* FAILED$", output, re.MULTILINE)
    assert re.search(r"^03_never +not run$", output, re.MULTILINE)
    assert "no such digit" in (paths.ARTIFACTS / "html/02_bad.html").read_text()
    assert not (paths.ARTIFACTS / "html/03_never.html").exists()


def test_kernel_that_dies_is_an_error_that_names_the_cell(course):
    path = write(course, "01_dies", "fine = 1", "import os\nos._exit(1)")
    error = execute.execute(path).error
    assert "cell 2 of 2" in error and "The kernel died" in error and "artifacts/logs/kernel-01_dies.log" in error


def test_what_native_code_prints_goes_to_the_log_and_not_into_the_table(course, capfd):
    native = "import os\nos.write(1, b'from native code\\n')\nos.write(2, b'and an error\\n')"
    assert execute.execute(write(course, "01_native", native, "import time\ntime.sleep(0.3)")).error is None
    printed = "".join(capfd.readouterr())
    assert "native" not in printed and "an error" not in printed and "encryption" not in printed
    assert "from native code" in (paths.ARTIFACTS / "logs/kernel-01_native.log").read_text()


def test_cell_that_takes_too_long_is_an_error(course, monkeypatch):
    monkeypatch.setattr(execute, "CELL_SECONDS", 1)
    error = execute.execute(write(course, "01_slow", "import time\ntime.sleep(30)")).error
    assert "cell 1 of 1" in error and "longer than 1 s" in error


def test_cell_that_may_raise_does_not_stop_the_notebook(course):
    execution = execute.execute(write(course, "01_raises", ("raises-exception", "1 / 0"), "print('after')"))
    assert execution.error is None and execution.cells == 2
    assert execution.nb.cells[0].outputs[0].ename == "ZeroDivisionError"


def test_no_tag_makes_a_cell_be_skipped(course):
    execution = execute.execute(write(course, "01_tags", ("skip-execution", "print('ran')")))
    assert execution.nb.cells[0].outputs[0].text == "ran\n"


def test_notebook_in_which_nothing_ran_is_an_error(course, monkeypatch):
    assert "nothing was executed" in execute.execute(write(course, "01_empty", "# 01 · Only text")).error
    monkeypatch.setattr(
        execute.NotebookClient, "execute", lambda self, **options: None
    )  # a client that does nothing at all
    path = write(course, "02_idle", "# 02 · Idle", "print('never')")
    error = execute.execute(path).error
    assert "a cell was not executed" in error and "print('never')" in error


def test_old_outputs_do_not_count_as_executed(course, monkeypatch):
    path = write(course, "01_old", "print(1)")
    nb = nbformat.read(path, as_version=4)
    nb.cells[0].execution_count = 1
    nbformat.write(nb, path)
    monkeypatch.setattr(execute.NotebookClient, "execute", lambda self, **options: None)
    assert execute.execute(path).error is not None


def test_unknown_number_names_what_exists(course):
    write(course, "01_first", "1")
    with pytest.raises(CommandError, match="no notebook 07. These exist: 01_first"):
        notebooks.select(["7"], course)


def test_numbers_select_in_the_courses_order(course):
    for name in ("01_a", "02_b", "05_c"):
        write(course, name, "1")
    assert [path.stem for path in notebooks.select(["5", "01"], course)] == ["01_a", "05_c"]


def test_progress_in_a_terminal_counts_cells_in_one_line(course):
    class Terminal:
        written = ""

        def isatty(self):
            return True

        def write(self, text):
            self.written += text

        def flush(self):
            pass

    terminal = Terminal()
    execute.execute(write(course, "01_three", "1", "2", "3"), execute.Progress(terminal))
    shown = [line.strip() for line in terminal.written.split("\r") if line.strip()]
    assert shown == [
        "01_three [....................] cell 1 of 3",
        "01_three [######..............] cell 2 of 3",
        "01_three [#############.......] cell 3 of 3",
    ]


# --- the pages -----------------------------------------------------------------------------------------


class Loads(HTMLParser):
    """What a browser fetches by itself when it opens the page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("src", "srcset", "data", "poster"):
            if attributes.get(name) is not None:
                self.found.append((tag, attributes[name]))
        if tag == "link":
            self.found.append((tag, attributes.get("href")))


def test_parser_of_this_test_finds_what_is_loaded():
    page = "<script src='https://x.org/a.js'></script><img src='p.png'><link href='b.css'><a href='https://y.org'>y</a>"
    assert Loads(page).found == [("script", "https://x.org/a.js"), ("img", "p.png"), ("link", "b.css")]


def test_pages_load_nothing(course):
    path = write(
        course,
        "01_all",
        "# 01 · All kinds\n\n![a picture](picture.png)\n\n$x^2$\n\n[a link](https://example.org)\n\n"
        "```mermaid\ngraph TD\n```",
        "import ipywidgets\nipywidgets.IntSlider(description='digit')",
        f"from base64 import b64decode\nfrom IPython.display import Image\nImage(b64decode('{PIXEL}'))",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    )
    import base64

    (course / "picture.png").write_bytes(base64.b64decode(PIXEL))
    execution = execute.execute(path)
    assert execution.error is None
    page = html.write_page(execution).read_text(encoding="utf-8")
    loads = Loads(page).found
    assert len([tag for tag, _ in loads if tag == "img"]) == 3
    assert [load for load in loads if not load[1].startswith("data:")] == []
    assert not re.search(r"(?:import|from|fetch\(|@import|url\()\s*['\"(]*https?:", page)
    assert 'href="https://example.org"' in page  # links stay
    index = html.write_index([execution]).read_text(encoding="utf-8")
    assert Loads(index).found == []


def test_links_lead_to_pages_and_back_into_the_project(course):
    (course / "solutions").mkdir()
    (course / "solutions/01_a.py").write_text("# %%\n")
    text = "# 01 · A\n\n[next](02_b.ipynb) [part](02_b.ipynb#step) [answers](solutions/01_a.py) [top](../README.md)"
    (course.parent / "README.md").write_text("top")
    execution = execute.execute(write(course, "01_a", text, "1"))
    page = html.write_page(execution)
    html.write_index([execution])
    links = re.findall(r'<a href="([^"#]*[^"]*)"', page.read_text(encoding="utf-8"))
    assert links[:4] == ["02_b.html", "02_b.html#step", "solutions/01_a.py", "../../README.md"]
    for link in links[2:4]:
        assert (page.parent / link).resolve().exists()


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C works otherwise on Windows")
def test_ctrl_c_ends_the_run_and_its_kernel_with_one_sentence(course):
    first = "import os, pathlib; pathlib.Path('pid').write_text(str(os.getpid()))"
    write(course, "01_slow", first, "import time; time.sleep(300)")
    program = (
        "import pathlib, sys; from helpers import paths; from helpers.cli import kernel, run; kernel.use_this_python();"
        "paths.ARTIFACTS = pathlib.Path(sys.argv[1]).parent / 'artifacts'\n"
        "try: run.run([pathlib.Path(sys.argv[1]) / '01_slow.ipynb'])\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", program, course], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    pid = course / "pid"
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    os.killpg(child.pid, signal.SIGINT)
    said = child.communicate(timeout=60)[0]
    assert said.rstrip().endswith("interrupted") and "Traceback" not in said
    assert not psutil.pid_exists(int(pid.read_text()))
