"""The kernel of the notebooks is the Python that runs this, whatever kernelspecs the machine has besides.

Jupyter looks up `python3` in many folders, a user's own first, and what it finds may be another Python, without the
course's packages. So a private kernelspec is written for this interpreter and its folder put in front of all others.
"""

import hashlib
import json
import os
import sys

from helpers import paths
from helpers.cli.bootstrap import child_environment


def private_folder():
    """artifacts/jupyter/<this interpreter>: two environments of one project must not share a kernelspec."""
    return paths.ARTIFACTS / "jupyter" / hashlib.sha256(sys.executable.encode()).hexdigest()[:8]


def use_this_python():
    """Make `python3` mean this interpreter for every Jupyter program started from here; return the kernelspec's path.

    Sets JUPYTER_PATH in this process. The kernel sees this project's `helpers` and keeps IPython's history and
    profile inside artifacts/, so that neither a notebook's result nor the user's own IPython changes.
    """
    folder = private_folder()
    seen = child_environment(paths.ROOT)
    specification = {
        # Log level 40, errors: it would warn that it speaks unencrypted TCP, which here never leaves this machine.
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--IPKernelApp.log_level=40"],
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "env": {
            "PYTHONPATH": seen["PYTHONPATH"],
            "PYTHONNOUSERSITE": "1",
            "IPYTHONDIR": str(paths.ARTIFACTS / "ipython"),
        },
        "metadata": {"debugger": True},
    }
    file = folder / "kernels" / "python3" / "kernel.json"
    paths.write_text(file, json.dumps(specification, indent=2))
    others = [entry for entry in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if entry != str(folder)]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), *others]))
    return file
