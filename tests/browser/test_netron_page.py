"""What a browser makes of Netron as the course serves it, a year after the release too, and as Netron itself does."""

import netron
import onnx
import pytest
from browsing import chromium, foreign, netron_graph, netron_state, requests, screenshot, wait

from helpers.artifacts import require
from helpers.convert import graph_ops
from helpers.netron_view import close_all, view


@pytest.fixture(scope="module")
def models(needed_programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    converted = require("mnist_cnn.mnn", folder)
    return folder / "mnist_cnn.onnx", converted


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


@pytest.fixture
def refused(monkeypatch):
    """Netron's own server, as shipped; its messages stay out of the report."""
    yield lambda path: "http://{}:{}/".format(*netron.start(str(path), address=("127.0.0.1", 0), browse=False))
    netron.stop()


def test_both_graphs_appear_a_year_after_the_release_without_dialog_or_foreign_request(models, caught):
    onnx_path, mnn_path = models
    nodes = [node.name for node in onnx.load(onnx_path).graph.node]
    ops = graph_ops(mnn_path)
    readers = {op.name: sum(op.outputs[0] in other.inputs for other in ops) for op in ops if op.type == "Const"}
    # Netron writes a constant with a single reader into that reader's box.
    drawn = [op.name for op in ops if op.type != "Input" and readers.get(op.name, 2) > 1]
    with chromium(caught, days_ahead=366) as browser:
        for path, expected in ((onnx_path, nodes), (mnn_path, drawn)):
            browser.get(view(path).url)
            graph = netron_graph(browser)
            screenshot(browser, f"netron_{path.suffix[1:]}")
            assert sorted(graph["names"]) == sorted(expected)
            assert graph["count"] == len(expected)
            assert graph["dialog"] == ""
            assert browser.get_cookies() == []
        asked = requests(browser)
        assert len(asked) > 20 and not foreign(asked)
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not caught, caught


def test_weights_in_a_file_of_their_own_reach_the_page(models, tmp_path, caught):
    path = tmp_path / "split.onnx"
    model = onnx.load(models[0])
    number = f"{onnx.numpy_helper.to_array(model.graph.initializer[0]).flat[0]:.5f}"[:6]
    onnx.save_model(model, path, save_as_external_data=True, location="split.bin", size_threshold=0)
    with chromium(caught) as browser:
        served = view(path)
        browser.get(served.url)
        assert netron_graph(browser)["count"] == len(model.graph.node)
        # A click on the first Conv and on the plus sign of its weights shows the numbers, which are in split.bin.
        browser.execute_script("""
            const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
            click([...document.querySelectorAll(".node-item-type")].find((e) => e.textContent.includes("Conv")));""")
        plus = "[...document.querySelectorAll('.sidebar-item-value-expander')].filter((e) => e.textContent === '+')"
        wait(browser, lambda: browser.execute_script(f"return {plus}.length"), "the side bar's plus signs")
        browser.execute_script(f"{plus}.forEach((button) => button.click())")
        wait(browser, lambda: number in browser.execute_script("return document.body.textContent"), number)
        asked = requests(browser)
        assert served.url + "data/split.bin" in [url.split("?")[0] for url in asked]
        assert not foreign(asked)
    assert not caught, caught


def test_netron_as_shipped_shows_no_graph_a_year_after_its_release(models, refused, caught):
    with chromium(caught, days_ahead=366) as browser:
        browser.get(refused(models[0]))
        dialog = wait(browser, lambda: netron_state(browser)["dialog"], "a dialog")
        assert "Please update to the newest version" in dialog and netron_state(browser)["count"] == 0


def test_netron_as_shipped_wants_to_know_the_country_and_these_tests_notice(models, refused, caught):
    with chromium(caught, days_ahead=-30) as browser:  # before any expiry
        browser.get(refused(models[0]))
        dialog = wait(browser, lambda: netron_state(browser)["dialog"], "a dialog")
        assert "cookies" in dialog
        asked = foreign(requests(browser))
        assert {url.split("?")[0] for url in asked} == {"https://ipinfo.io/json"}
    assert caught.lines == ["CONNECT ipinfo.io:443 HTTP/1.1"], caught
