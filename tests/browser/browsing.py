"""A headless Chromium that can reach nothing but this machine, and JupyterLab as `lab` starts it, for the tests here.

with proxy() as caught, chromium(caught) as browser: browser.get(…); assert not caught
with jupyter_lab(copy) as lab: open_notebook(browser, lab, "03_visualize.ipynb")
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import nbformat
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from helpers import paths
from helpers.cli import bootstrap
from helpers.cli.execute import clean

SCREENSHOTS = paths.ARTIFACTS / "screenshots"
SLOW = 240  # seconds to wait for what takes 30 on a quiet machine; reached only when something is wrong


def programs():
    """(path of Chromium, path of its driver), None for one that is missing."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")


# --- the browser -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def proxy():
    """A proxy for everything that isn't this machine; yields the list of what was asked of it. It forwards nothing."""
    caught = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            line = self.rfile.readline().decode("latin-1").strip()
            if line and not ERRANDS.search(line):
                caught.append(line)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        caught_by = Caught(caught, f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=[0.1], daemon=True)
        thread.start()
        try:
            yield caught_by
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Caught:
    """What somebody wanted from other machines: the first line of each request, such as "CONNECT example.org:443"."""

    lines: list
    address: str

    def __bool__(self):
        return bool(self.lines)

    def __repr__(self):
        return f"requests that wanted to leave this machine: {self.lines}"


FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-domain-reliability", "--window-size=1300,1000", "--lang=en-US",
    "--disable-features=OptimizationHints,MediaRouter,Translate,PreconnectToSearch,PreconnectToSearchNonGoogle",
)  # fmt: skip
# Whom Chromium itself asks, whatever page it shows: whether somebody is signed in, for updates, and the search engine
# of its start page. No page of ours or of Netron's does: its telemetry goes to analytics.google.com.
ERRANDS = re.compile(
    r"(accounts|clients\d*|update)\.google(apis)?\.com\b|\.gvt1\.com\b|content-autofill\.googleapis\.com"
    r"|www\.google\.com\b|duckduckgo\.com\b"
)


@contextlib.contextmanager
def chromium(caught, days_ahead=0):
    """A browser with an empty profile whose requests to other machines end at the proxy `caught`.

    days_ahead: how far its pages' clocks are ahead.
    """
    binary, driver = programs()
    profile = tempfile.mkdtemp(prefix="chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--proxy-server={caught.address}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        browser.get("about:blank")
        if days_ahead:
            browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LATER % days_ahead})
        yield browser
    except BaseException:
        screenshot(browser, "failed")
        raise
    finally:
        browser.quit()
        shutil.rmtree(profile, ignore_errors=True)


LATER = """
const Today = Date, ahead = %d * 24 * 60 * 60 * 1000;
window.Date = class extends Today {
    constructor(...given) { given.length ? super(...given) : super(Today.now() + ahead); }
    static now() { return Today.now() + ahead; }
};
"""


def screenshot(browser, name):
    """Keep what the browser shows in artifacts/screenshots/<name>.png."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def wait(browser, condition, what, seconds=60):
    """Poll until `condition()` is true and return its value; TimeoutError says what was waited for."""
    try:
        return WebDriverWait(browser, seconds, poll_frequency=0.2).until(lambda _: condition())
    except TimeoutException:
        errors = [entry["message"] for entry in browser.get_log("browser")]
        raise TimeoutError(f"Waited {seconds} s in vain for {what}. The browser's errors: {errors}") from None


def requests(browser):
    """Addresses that pages, frames and their workers asked for since the last call, without data: and the like."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
        elif message["method"] == "Network.webSocketCreated":
            found.append(message["params"]["url"])
    return [url for url in found if url.startswith(("http:", "https:", "ws:", "wss:"))]


def foreign(urls):
    """Those of the addresses that aren't on loopback."""
    return [url for url in urls if url.split("/")[2].rsplit(":", 1)[0] not in ("127.0.0.1", "localhost")]


# --- Netron ------------------------------------------------------------------------------------------------


def netron_state(browser):
    """What Netron's page, to which the browser is switched, shows: status, texts of operators, dialog."""
    return browser.execute_script("""
        const text = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
        const dialog = document.getElementById("message");
        return {
            status: document.body.className,
            operators: text("g.graph-node .node-item-type, g.graph-node .node-item"),
            count: document.querySelectorAll("g.graph-node").length,
            names: [...document.querySelectorAll("g.graph-node")].map((node) => node.id.replace("node-name-", "")),
            dialog: dialog && getComputedStyle(dialog).display !== "none" ? dialog.textContent.trim() : "",
        }""")


def netron_graph(browser):
    """netron_state once the graph is drawn."""
    wait(browser, lambda: netron_state(browser)["count"] and netron_state(browser)["status"] == "default", "a graph")
    return netron_state(browser)


# --- JupyterLab --------------------------------------------------------------------------------------------


@dataclass
class Lab:
    base: str
    token: str
    copy: Path
    guard: Path

    def hosts(self):
        """Other machines that a Python process of JupyterLab or a kernel tried to reach (see tests/notebooks/guard)."""
        lines = self.guard.read_text("utf-8").splitlines() if self.guard.exists() else []
        return sorted({line["host"] for line in map(json.loads, lines) if "host" in line})

    def ask(self, path):
        """JSON from the server's interface."""
        with urllib.request.urlopen(f"{self.base}{path}?token={self.token}", timeout=10) as answer:
            return json.load(answer)


def copy_of_project(folder):
    """A copy of what `lab` needs, in which notebooks may be saved; none of them has been executed."""
    copy = Path(folder) / "project"
    for name in ("helpers", "notebooks", "data"):
        ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
        shutil.copytree(paths.ROOT / name, copy / name, ignore=ignore)
    for notebook in (copy / "notebooks").glob("*.ipynb"):  # else the committed outputs would pass for new ones
        nbformat.write(clean(nbformat.read(notebook, as_version=4)), notebook)
    return copy


@contextlib.contextmanager
def jupyter_lab(copy):
    """JupyterLab on a copy of the project, as its `lab` command starts it; yields `Lab`. Ended on leaving."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, guard = secrets.token_hex(16), copy.parent / "guard.jsonl"
    environment = bootstrap.child_environment(copy)
    for name in [name for name in environment if name.startswith("JUPYTER_") or name == "MNN_COURSE_ARTIFACTS"]:
        del environment[name]
    watch = paths.ROOT / "tests" / "notebooks" / "guard"
    environment["PYTHONPATH"] = os.pathsep.join([str(watch), str(copy)])
    environment["COURSE_GUARD_LOG"] = str(guard)
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        environment[name] = str(copy.parent / name.lower())
    # `python -m helpers lab` would first look for an environment; this is the same command behind that door.
    program = "import sys; from helpers.cli import lab; sys.exit(lab.main(None, sys.argv[1:]))"
    options = ["--no-browser", "--port", str(port), "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    log = copy.parent / "lab.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [sys.executable, "-c", program, *options], cwd=copy, env=environment, stdout=sink, stderr=sink
        )
    lab = Lab(f"http://127.0.0.1:{port}", token, copy, guard)
    try:
        deadline = time.monotonic() + SLOW
        while True:
            try:
                lab.ask("/api/status")
                break
            except OSError:
                words = log.read_text("utf-8", "replace")[-3000:]
                assert server.poll() is None, f"JupyterLab ended with exit code {server.returncode}:\n{words}"
                assert time.monotonic() < deadline, f"JupyterLab does not answer:\n{words}"
                time.sleep(0.3)
        yield lab
    finally:
        server.send_signal(signal.SIGTERM)  # it ends its kernels first
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def open_notebook(browser, lab, name):
    """Open a notebook in JupyterLab and wait until its kernel is there and idle."""
    # A workspace of its own: in the common one JupyterLab also opens what an earlier test had open.
    browser.get(f"{lab.base}/lab/workspaces/{Path(name).stem}/tree/{name}?token={lab.token}")
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell"), "the cells", SLOW)

    def idle():
        sessions = [session for session in lab.ask("/api/sessions") if session["path"].endswith(name)]
        return any(s["kernel"]["execution_state"] == "idle" and s["kernel"]["connections"] for s in sessions)

    # The page shows "idle" before it has a kernel, and Run All would then ask which kernel to take.
    wait(browser, idle, "the kernel to be idle", SLOW)
    indicator = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, indicator), "the page to show that", SLOW)


def run_menu(browser, words):
    """Choose an entry of the Run menu, such as "Run All Cells"."""
    click(browser, "//div[contains(@class,'lm-MenuBar-itemLabel') and text()='Run']")
    click(browser, f"//div[contains(@class,'lm-Menu-itemLabel') and text()='{words}']")


def click(browser, xpath):
    wait(browser, lambda: browser.find_elements(By.XPATH, xpath), xpath)[0].click()


def select_cell(browser, text):
    """Make the code cell whose source contains `text` the active one, and return it."""
    cell = wait(browser, lambda: find_cell(browser, text) or scroll_on(browser), f"a cell with {text}")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
    wait(browser, lambda: cell.find_elements(By.CSS_SELECTOR, ".jp-InputPrompt"), "its prompt")
    cell.find_element(By.CSS_SELECTOR, ".jp-InputPrompt").click()
    wait(browser, lambda: "jp-mod-active" in cell.get_attribute("class"), "the cell to be active")
    return cell


def find_cell(browser, text):
    """The code cell whose source contains `text`, or None."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.jp-CodeCell')]"
        ".find((cell) => cell.querySelector('.jp-InputArea-editor')?.textContent.includes(arguments[0]))",
        text,
    )


def scroll_on(browser):
    """Scroll the notebook by most of a page, from its end to its top: what was never in sight may not be drawn."""
    browser.execute_script("""
        let box = document.querySelector(".jp-Notebook .jp-Cell");
        while (box && !(box.scrollHeight > box.clientHeight && /auto|scroll/.test(getComputedStyle(box).overflowY)))
            box = box.parentElement;
        if (box) {
            const end = box.scrollTop + box.clientHeight >= box.scrollHeight - 2;
            box.scrollTop = end ? 0 : box.scrollTop + 0.8 * box.clientHeight;
        }""")


def executed(browser, lab, name, cell=None):
    """Wait until the kernel is idle and the cell (default: every code cell) has a number; no error may be shown."""

    def counted():
        prompts = browser.execute_script(
            "return (arguments[0] ? [arguments[0]] : [...document.querySelectorAll('.jp-CodeCell')])"
            ".map((cell) => cell.querySelector('.jp-InputPrompt')?.textContent ?? '')",
            cell,
        )
        sessions = [session for session in lab.ask("/api/sessions") if session["path"].endswith(name)]
        idle = all(session["kernel"]["execution_state"] == "idle" for session in sessions)
        return idle and prompts and all(prompt.strip("[]: ").isdigit() for prompt in prompts)

    wait(browser, counted, "the cells to be executed", SLOW)
    errors = browser.find_elements(By.CSS_SELECTOR, ".jp-OutputArea-output[data-mime-type*='error']")
    assert not errors, errors[0].text


def draw(browser, canvas, strokes):
    """Draw strokes with the mouse; a stroke is a list of (x, y) in 0..1 of the canvas, joined by straight lines."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    size = canvas.size
    for stroke in strokes:
        points = [stroke[0]]
        for (x0, y0), (x1, y1) in zip(stroke, stroke[1:], strict=False):
            points += [(x0 + (x1 - x0) * t / 6, y0 + (y1 - y0) * t / 6) for t in range(1, 7)]
        mouse = ActionChains(browser, duration=12)
        for i, (x, y) in enumerate(points):
            # Selenium measures from the element's centre.
            mouse.move_to_element_with_offset(canvas, (x - 0.5) * size["width"], (y - 0.5) * size["height"])
            if i == 0:
                mouse.click_and_hold()
        mouse.release().perform()
