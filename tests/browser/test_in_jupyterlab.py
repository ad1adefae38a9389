"""What a learner sees and does: two notebooks, in JupyterLab as `lab` starts it, in a real browser."""

import math

import onnx
import pytest
from browsing import (
    chromium,
    copy_of_project,
    draw,
    executed,
    find_cell,
    foreign,
    jupyter_lab,
    netron_graph,
    open_notebook,
    requests,
    run_menu,
    screenshot,
    select_cell,
    wait,
)
from selenium.webdriver.common.by import By

STROKES = {
    "1": [[(0.56, 0.12), (0.46, 0.88)]],
    "7": [[(0.22, 0.2), (0.75, 0.2), (0.42, 0.88)]],
    "0": [
        [(0.5 + 0.22 * math.sin(math.pi * i / 8), 0.5 - 0.34 * math.cos(math.pi * i / 8)) for i in range(17)]
    ],
}


@pytest.fixture(scope="module")
def lab(needed_programs, tmp_path_factory):
    with jupyter_lab(copy_of_project(tmp_path_factory.mktemp("lab"))) as lab:
        yield lab


def frames(browser):
    return browser.find_elements(By.CSS_SELECTOR, "object.netron")


def test_03_shows_the_graphs_in_netron_and_pictures_once_they_are_closed(lab, caught):
    name = "03_visualize.ipynb"
    with chromium(caught) as browser:
        open_notebook(browser, lab, name)
        last = select_cell(browser, "close_all()")
        run_menu(browser, "Run All Above Selected Cell")  # the last cell ends the views
        executed(browser, lab, name, select_cell(browser, 'progress("03")'))
        assert len(wait(browser, lambda: frames(browser), "Netron's frames")) == 4
        expected = [
            len(onnx.load(lab.copy / "artifacts" / file).graph.node)
            for file in ("mnist_cnn.onnx", "nb03/suspect_a.onnx", "nb03/suspect_b.onnx")
        ]
        for number, (index, count) in enumerate(zip((0, 2, 3), expected, strict=True)):
            frame = frames(browser)[index]
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", frame)
            browser.switch_to.frame(frame)
            graph = netron_graph(browser)
            browser.switch_to.default_content()
            if number == 0:
                screenshot(browser, "jupyterlab_03_netron")
            assert (graph["count"], graph["dialog"]) == (count, "")

        maps = "return [...document.querySelectorAll('.widget-image')].map((image) => image.src).join()"
        wait(browser, lambda: browser.execute_script(maps), "the feature maps")
        before = browser.execute_script(maps)
        browser.find_element(By.CSS_SELECTOR, ".mnn-pad-clear").click()
        draw(browser, browser.find_element(By.CSS_SELECTOR, ".mnn-pad canvas"), STROKES["0"])
        wait(browser, lambda: browser.execute_script(maps) != before, "the feature maps to follow the pen")
        screenshot(browser, "jupyterlab_03_maps")

        select_cell(browser, "close_all()")
        run_menu(browser, "Run Selected Cell and All Below")
        executed(browser, lab, name, last)
        wait(browser, lambda: not frames(browser), "the frames to be replaced")
        for text in ("onnx_view = view(", "mnn_view = view(", "view_a = view(", "view_b = view("):
            pictures = find_cell(browser, text).find_elements(By.CSS_SELECTOR, ".jp-RenderedImage img")
            assert [picture.size["height"] > 500 for picture in pictures] == [True], text
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", find_cell(browser, "onnx_view = "))
        screenshot(browser, "jupyterlab_03_closed")
        assert not foreign(requests(browser))
    assert not caught, caught
    assert lab.hosts() == []


def test_06_recognises_digits_that_are_drawn_with_the_mouse(lab, caught):
    name = "06_infer.ipynb"
    with chromium(caught) as browser:
        open_notebook(browser, lab, name)
        cell = select_cell(browser, "pad = DigitGuesser(")
        run_menu(browser, "Run All Cells")
        executed(browser, lab, name)

        def guess():  # read in one step, because the widget replaces the element while one draws
            return browser.execute_script("return document.querySelector('.mnn-guess')?.textContent")

        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
        canvas = wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".mnn-pad canvas"), "the pad")[0]
        clear = browser.find_element(By.CSS_SELECTOR, ".mnn-pad-clear")
        wait(browser, lambda: guess() == "7", "the example's answer, 7")
        for digit, strokes in STROKES.items():
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
            clear.click()
            wait(browser, lambda: guess() == "–", "an empty pad after Clear")
            draw(browser, canvas, strokes)
            wait(browser, lambda digit=digit: guess() == digit, f"the answer {digit}")
            screenshot(browser, f"jupyterlab_06_drawn_{digit}")
        assert not foreign(requests(browser))
    assert not caught, caught
    assert lab.hosts() == []
