"""`lab`: JupyterLab on the notebooks, with this interpreter as kernel, for this machine only, calling nowhere."""

import json
import os
import subprocess
import sys

from helpers import paths
from helpers.cli import kernel

# Read from a configuration folder of our own, so that a setting in the user's ~/.jupyter can't open the server to the
# network or take its token away. What the user sets in JupyterLab is kept there too.
CONFIGURATION = {
    "ServerApp": {"ip": "127.0.0.1", "allow_remote_access": False},
    "KernelSpecManager": {"allowed_kernelspecs": ["python3"]},
    "LabApp": {
        "news_url": None,
        "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "extension_manager": "readonly",  # the other one asks the package index for extensions
    },
}
# What JupyterLab remembers of a user's choices; written where the user has made none yet.
SETTINGS = {
    # Otherwise it asks at its first start whether it may fetch news.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # The notebooks link to the glossary: to read, not to edit.
    "docmanager-extension/plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}


def main(_options, rest):
    """Become JupyterLab; `rest` are further options for it. Returns its exit code on Windows."""
    kernel.use_this_python()
    folder = kernel.private_folder() / "config"
    paths.write_text(folder / "jupyter_server_config.json", json.dumps(CONFIGURATION, indent=2))
    for name, choice in SETTINGS.items():
        settings = folder / "lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        if not settings.exists():
            paths.write_text(settings, json.dumps(choice))
    os.environ["JUPYTER_CONFIG_DIR"] = str(folder)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={paths.NOTEBOOKS}"]
    first = next(iter(sorted(paths.NOTEBOOKS.glob("*.ipynb"))), None)
    if first is not None:
        command.append(f"--LabApp.default_url=/lab/tree/{first.name}")
    if os.name != "nt" and os.geteuid() == 0:
        command.append("--allow-root")  # in a container there is often nobody else
    command += rest
    print("JupyterLab is starting; it prints its address; Ctrl-C, twice if it asks, stops it.", flush=True)
    if os.name != "nt":
        os.execv(command[0], command)
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:  # went to JupyterLab too, which asks and stops
        return 0
