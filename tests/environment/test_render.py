"""render saves notebooks in one form, whole or not at all."""

import json
import sys

import nbformat
import pytest
from nbformat import v4

from helpers import paths
from helpers.cli import hygiene, kernel, render


@pytest.fixture(autouse=True)
def course(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setenv("JUPYTER_PATH", "")
    kernel.use_this_python()
    monkeypatch.setattr(hygiene, "problems", lambda path: [])
    monkeypatch.setattr(hygiene, "record", lambda path: 1)
    return tmp_path


def write(path, *cells):
    nb = v4.new_notebook(cells=[v4.new_code_cell(source, id=f"step-{n}") for n, source in enumerate(cells)])
    nbformat.write(nb, path)
    return path


def test_rendered_notebook_has_fresh_outputs_and_only_lasting_metadata(course):
    path = write(course / "01_a.ipynb", "import ipywidgets\nipywidgets.IntSlider()", "print(6 * 7)\nprint(1)")
    nb = nbformat.read(path, as_version=4)
    nb.metadata = {
        "kernelspec": {"name": "conda-env", "display_name": "mine"},
        "language_info": {"name": "python", "version": "3.9.1"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {}},
    }
    nb.cells[1].outputs = [v4.new_output("stream", text="old\n")]
    nb.cells[1].execution_count = 17
    nb.cells[1].metadata = {"execution": {"iopub.status.busy": "2020"}, "scrolled": True, "tags": ["exercise"]}
    nbformat.write(nb, path)

    assert render.render(path)
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert (saved["nbformat"], saved["nbformat_minor"]) == (4, 5)
    assert saved["metadata"] == {
        "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
        "language_info": {"name": "python"},
    }
    assert [cell["id"] for cell in saved["cells"]] == ["step-0", "step-1"]
    assert [cell["execution_count"] for cell in saved["cells"]] == [1, 2]
    assert saved["cells"][1]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["42\n", "1\n"]}]
    assert saved["cells"][1]["metadata"] == {"tags": ["exercise"]}
    assert list(saved["cells"][0]["outputs"][0]["data"]) == ["text/plain"]


def test_rendering_twice_gives_the_same_bytes(course):
    path = write(course / "01_a.ipynb", "print('a')", "{1: 2}")
    render.render(path)
    first = path.read_bytes()
    render.render(path)
    assert path.read_bytes() == first and first.endswith(b"}\n")


def test_failing_notebook_is_left_as_it_was(course, capsys):
    path = write(course / "01_a.ipynb", "print('a')", "1 / 0")
    before = path.read_bytes()
    assert not render.render(path)
    assert path.read_bytes() == before
    assert "cell 2 of 2" in capsys.readouterr().out
    assert [item.name for item in course.iterdir() if item.name.startswith(".")] == []


def test_interrupted_save_leaves_the_old_notebook(course, monkeypatch):
    path = write(course / "01_a.ipynb", "print('a')")
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError):
        render.render(path)
    assert path.read_bytes() == before


def test_problems_are_printed_and_not_recorded(course, monkeypatch, capsys):
    monkeypatch.setattr(hygiene, "problems", lambda path: ["It has no title."])
    monkeypatch.setattr(hygiene, "record", lambda path: pytest.fail("it was recorded"))
    assert not render.render(write(course / "01_a.ipynb", "print('a')"))
    assert "01_a: It has no title." in capsys.readouterr().out


def test_tracebacks_name_no_folder_of_this_machine(course):
    source = "import json, numpy, helpers.cli.notebooks as n\nfrom pathlib import Path\n"
    path = course / "01_a.ipynb"
    cells = [
        v4.new_code_cell(source + code, id=f"c{number}", metadata={"tags": ["raises-exception"]})
        for number, code in enumerate(["n.select([], Path('x'))", "json.loads('{')", "numpy.zeros(3).reshape(2)"])
    ]
    nbformat.write(v4.new_notebook(cells=cells), path)
    assert render.render(path)
    nb = nbformat.read(path, as_version=4)
    text = "\n".join("\n".join(cell.outputs[0].traceback) for cell in nb.cells)
    assert "helpers/cli/notebooks.py" in text and "json/__init__.py" in text  # what helps the reader stays
    for folder in (str(paths.ROOT), sys.prefix, sys.base_prefix, "~/"):
        assert folder not in text
