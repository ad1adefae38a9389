"""A click on a box of the decision chart leads to its heading: opened but not run, run, and in the exported page."""

from types import SimpleNamespace

import nbformat
import pytest
from browsing import chromium, copy_of_project, executed, jupyter_lab, open_notebook, run_menu, screenshot, wait
from nbformat import v4
from selenium.webdriver.common.action_chains import ActionChains

from helpers.cli import html
from helpers.decision_chart import describe, draw

LINKS = {
    "files": "Files: are they there?",
    "channels": "Red first, or blue",
    "layout": "Layout (HWC / CHW)",
    "accuracy": "cell-id=last-cell",
}
HEADINGS = [*list(LINKS.values())[:-1], "Größe × 2"]
NAME = "chart.ipynb"


def notebook():
    """The chart, and its headings far below one another; the stored output is one that nobody here has run."""
    source = f"from helpers import decision_chart\n\ndecision_chart.show(links={LINKS!r})"
    stored = v4.new_output("display_data", {"text/html": draw(links=LINKS), "text/plain": describe()})
    cells = [v4.new_markdown_cell("# Chart"), v4.new_code_cell(source, execution_count=1, outputs=[stored])]
    for number, heading in enumerate(HEADINGS):
        identity = "last-cell" if number == len(HEADINGS) - 1 else f"heading-{number}"
        cells.append(v4.new_markdown_cell(f"## {heading}\n\n" + "Text.\n\n" * 30, id=identity))
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


@pytest.fixture(scope="module")
def lab(needed_programs, tmp_path_factory):
    copy = copy_of_project(tmp_path_factory.mktemp("chart"))
    nbformat.write(notebook(), copy / "notebooks" / NAME)
    with jupyter_lab(copy) as lab:
        yield lab


def assert_boxes_lead_to_their_headings(browser):
    """Click each box; its heading must then be at the top of what is seen, where it was not before."""
    for place, heading in enumerate(HEADINGS):
        link = browser.execute_script(
            "const link = document.querySelectorAll('.decision-chart a')[arguments[0]];"
            "link.scrollIntoView({block: 'center'}); return link", place,
        )  # fmt: skip
        before = top(browser, heading)
        assert before is None or before > 200 or before < 0
        ActionChains(browser).move_to_element(link).click().perform()
        # JupyterLab guesses the heights of cells that it has not drawn yet: a first long jump may end a little early.
        try:
            wait(browser, lambda heading=heading: at_the_top(browser, heading), heading, 10)
        except TimeoutError:
            browser.execute_script("arguments[0].click()", link)
            wait(browser, lambda heading=heading: at_the_top(browser, heading), heading, 10)


def top(browser, heading):
    """Where the heading is on the screen, in pixels from the top; None while it is not drawn."""
    return browser.execute_script(
        "return [...document.querySelectorAll('h2')].find((h) => h.textContent.startsWith(arguments[0]))"
        "?.getBoundingClientRect().top", heading,
    )  # fmt: skip


def at_the_top(browser, heading):
    place = top(browser, heading)
    return place is not None and -5 <= place <= 200


def test_in_a_notebook_that_was_opened_and_then_run(lab, caught):
    with chromium(caught) as browser:
        open_notebook(browser, lab, NAME)
        assert_boxes_lead_to_their_headings(browser)
        colour = "return getComputedStyle(document.querySelector('.decision-chart a')).backgroundColor"
        assert browser.execute_script(colour) == "rgb(220, 238, 249)"  # the style was not taken out
        run_menu(browser, "Run All Cells")
        executed(browser, lab, NAME)
        wait(browser, lambda: browser.execute_script("return document.querySelector('.decision-chart')"), "the chart")
        assert_boxes_lead_to_their_headings(browser)
        browser.execute_script("document.querySelector('.decision-chart').scrollIntoView()")
        screenshot(browser, "jupyterlab_decision_chart")
    assert not caught, caught


def test_in_the_page_that_run_writes(tmp_path, caught):
    page = html.write_page(SimpleNamespace(nb=notebook(), path=tmp_path / NAME), tmp_path / "html")
    with chromium(caught) as browser:
        browser.get(page.as_uri())
        assert_boxes_lead_to_their_headings(browser)
    assert not caught, caught
