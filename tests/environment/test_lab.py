"""lab starts a server for this machine only, with a token; its kernel is this interpreter, whatever else there is."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import psutil
import pytest

from helpers import paths
from helpers.cli import bootstrap, kernel, lab

TOKEN = "a-token-for-this-test"


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab as `lab --no-browser --port N` starts it, for a user with a kernelspec and a bad setup."""
    folder = tmp_path_factory.mktemp("lab")
    home, port = folder / "home", free_port()
    decoy = home / ".local/share/jupyter/kernels/python3"
    decoy.mkdir(parents=True)
    (decoy / "kernel.json").write_text(json.dumps({"argv": ["decoy"], "display_name": "Decoy", "language": "python"}))
    (home / ".jupyter").mkdir()
    open_to_all = {"ServerApp": {"ip": "0.0.0.0", "token": ""}, "IdentityProvider": {"token": ""}}
    (home / ".jupyter/jupyter_server_config.json").write_text(json.dumps(open_to_all))

    environment = bootstrap.child_environment(paths.ROOT)
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "CONDA_PREFIX"):
        environment.pop(name, None)
    runtime, artifacts = str(folder / "runtime"), str(folder / "artifacts")
    environment.update(HOME=str(home), JUPYTER_RUNTIME_DIR=runtime, MNN_COURSE_ARTIFACTS=artifacts)
    program = "import sys; from helpers.cli import lab; lab.main(None, sys.argv[1:])"
    options = ["--no-browser", "--port", str(port), "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    log = open(folder / "log", "w+")  # noqa: SIM115 (closed below)
    process = subprocess.Popen([sys.executable, "-c", program, *options], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/login", timeout=5).close()
                break
            except OSError:
                words = (folder / "log").read_text()
                assert process.poll() is None and time.monotonic() < deadline, words
                time.sleep(0.2)
        yield SimpleNamespace(port=port, process=process, log=folder / "log", artifacts=folder / "artifacts")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()


def ask(server, path, *, token=TOKEN, data=None, method=None):
    """(status, body) of a request to the server."""
    headers = {"Authorization": f"token {token}"} if token else {}
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_server_answers_with_the_token_only(server):
    assert ask(server, "/api/status")[0] == 200
    assert ask(server, "/api/status", token=None)[0] == 403
    assert ask(server, "/api/status", token="another")[0] == 403


def test_server_listens_on_loopback_only_whatever_the_user_configured(server):
    listening = [c for c in psutil.Process(server.process.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert server.port in [connection.laddr.port for connection in listening]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}


def test_the_only_kernelspec_is_the_courses_own(server):
    specs = json.loads(ask(server, "/api/kernelspecs")[1])
    assert specs["default"] == "python3" and list(specs["kernelspecs"]) == ["python3"]
    assert specs["kernelspecs"]["python3"]["spec"]["argv"][0] == sys.executable


def test_a_kernel_that_is_started_is_this_interpreter(server):
    status, body = ask(server, "/api/kernels", data={"name": "python3"})
    assert status == 201, body
    children = psutil.Process(server.process.pid).children()
    commands = [child.cmdline() for child in children]
    assert [sys.executable, "-m", "ipykernel_launcher"] in [command[:3] for command in commands]
    assert ask(server, f"/api/kernels/{json.loads(body)['id']}", method="DELETE")[0] == 204


def test_files_are_those_of_the_notebooks_folder(server):
    listing = json.loads(ask(server, "/api/contents")[1])["content"]
    assert "solutions" in [entry["name"] for entry in listing]


def test_lab_asks_nobody_for_news_updates_or_extensions(server):
    page = ask(server, "/lab")[1]
    settings = json.loads(page.split('id="jupyter-config-data" type="application/json">')[1].split("</script>")[0])
    assert settings["news"] == {"disabled": True}
    assert json.loads(ask(server, "/lab/api/news")[1])["news"] == []
    assert json.loads(ask(server, "/lab/api/update")[1])["notification"] is None
    manager = settings["extensionManager"]
    assert (manager["name"], manager["can_install"]) == ("read-only", False)
    for name, choice in lab.SETTINGS.items():
        asked = json.loads(ask(server, f"/lab/api/settings/@jupyterlab/{name.replace('/', ':')}")[1])
        assert json.loads(asked["raw"]) == choice


def test_interface_and_widgets_come_from_the_server_itself(server):
    page = ask(server, "/lab")[1]
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^>]+>", page) == []
    settings = json.loads(page.split('id="jupyter-config-data" type="application/json">')[1].split("</script>")[0])
    names = {extension["name"] for extension in settings["federated_extensions"]}
    assert {"@jupyter-widgets/jupyterlab-manager", "anywidget"} <= names


def test_kernelspecs_of_two_interpreters_do_not_overwrite_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join(["/first", "/second"]))
    mine = kernel.use_this_python()
    kernel.use_this_python()  # twice is once
    assert os.environ["JUPYTER_PATH"].split(os.pathsep) == [str(mine.parents[2]), "/first", "/second"]
    monkeypatch.setattr(sys, "executable", "/another/python")
    other = kernel.use_this_python()
    assert mine != other
    assert json.loads(other.read_text())["argv"][0] == "/another/python"
    assert json.loads(mine.read_text())["argv"][0] != "/another/python"
