"""What a learner does with notebook 10's chat: asks, reads along, stops, clears; in JupyterLab, in a real browser."""

import nbformat
import pytest
from browsing import (
    chromium,
    copy_of_project,
    executed,
    foreign,
    jupyter_lab,
    open_notebook,
    requests,
    run_menu,
    screenshot,
    select_cell,
    wait,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from helpers.paths import LLM_CACHE

NAME = "10_llm.ipynb"
CELLS = (  # of the notebook, by words that only they have: what the chat needs, and the chat
    "before = installed()", "source = llm_weights.checkpoint()", "question = \"What is the capital", "w8 = llm_export.",
    "first = chat(question)", 'chat.stream("And of Germany?")', "third = chat(", "dialogue = [", "box = ChatBox(",
)  # fmt: skip
ASKED, SAID = ".mnn-asked span", ".mnn-said span"


@pytest.fixture(scope="module")
def lab(needed_programs, gguf, tmp_path_factory):
    """JupyterLab on a copy whose notebook 10 has those cells alone; the model is kept where it was made."""
    copy = copy_of_project(tmp_path_factory.mktemp("chat"))
    notebook = nbformat.read(copy / "notebooks" / NAME, as_version=4)
    found = [next(cell for cell in notebook.cells if words in cell.source) for words in CELLS]
    notebook.cells = [cell for cell in notebook.cells if cell in found]
    nbformat.write(notebook, copy / "notebooks" / NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MNN_COURSE_LLM_CACHE", str(LLM_CACHE))
        patch.delenv("MNN_COURSE_LLM", raising=False)
        with jupyter_lab(copy) as lab:
            yield lab


def texts(browser, selector):
    """What the elements show, read in one step, because the widget replaces them while one reads."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", selector
    )


def button(browser, words):
    return browser.find_element(By.XPATH, f"//button[contains(@class,'widget-button') and normalize-space()='{words}']")


def ask(browser, question):
    field = browser.find_element(By.CSS_SELECTOR, ".widget-text input")
    field.clear()
    field.send_keys(question, Keys.ENTER)
    wait(browser, lambda: texts(browser, ASKED)[-1:] == [question], "the question in the conversation")


def idle(browser):
    return button(browser, "Send").is_enabled() and not button(browser, "Stop").is_enabled()


def test_a_question_is_answered_piece_by_piece_stopped_and_cleared(lab, caught):
    with chromium(caught) as browser:
        open_notebook(browser, lab, NAME)
        cell = select_cell(browser, "box = ChatBox(")
        run_menu(browser, "Run All Cells")
        executed(browser, lab, NAME)
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
        wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".widget-text input"), "the field to type in")
        assert texts(browser, ASKED)[0] == "What is the capital of France?"  # the example

        ask(browser, "What is the capital of France?")
        wait(browser, lambda: idle(browser), "the end of the answer")
        assert "Paris" in texts(browser, SAID)[-1]
        screenshot(browser, "jupyterlab_10_answer")

        ask(browser, "Write a long poem about the sea.")
        seen = set()
        wait(browser, lambda: len(texts(browser, SAID)[-1]) > 20, "the answer's beginning")
        assert not idle(browser)
        wait(browser, lambda: seen.add(texts(browser, SAID)[-1]) or len(seen) > 3, "the answer to grow")
        screenshot(browser, "jupyterlab_10_streaming")
        button(browser, "Stop").click()
        wait(browser, lambda: idle(browser), "the answer to stop")
        stopped = texts(browser, SAID)[-1]
        assert len(texts(browser, ASKED)) == 2
        assert "stopped" in browser.find_element(By.CSS_SELECTOR, ".jp-Notebook").text
        assert all(stopped.startswith(earlier) for earlier in seen)

        button(browser, "Clear").click()
        example = ["What is the capital of France?", "And of Germany?", "And of Italy?"]
        wait(browser, lambda: texts(browser, ASKED) == example, "the example again")
        ask(browser, "What is the capital of France?")
        wait(browser, lambda: idle(browser), "an answer after Clear")
        assert "Paris" in texts(browser, SAID)[-1]
        assert not browser.find_elements(By.CSS_SELECTOR, ".mnn-error")
        assert not foreign(requests(browser))
    assert not caught, caught
    assert lab.hosts() == []
