"""Execute a notebook in this environment's kernel: python execute.py IN.ipynb OUT.ipynb

Stops at the first error that no `raises-exception` tag announces: prints the cell and ends with 1. What was executed
until then is saved all the same.
"""

import sys
from pathlib import Path

import nbformat
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError


class ThisEnvironment(KernelSpecManager):
    """Whatever kernel is asked for, this very Python is it: a `python3` installed elsewhere must not step in."""

    def get_kernel_spec(self, kernel_name):
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def main(source, target):
    nb = nbformat.read(source, as_version=4)
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisEnvironment())
    client = NotebookClient(
        nb, km=kernel, timeout=900, resources={"metadata": {"path": str(Path(source).resolve().parent)}},
        coalesce_streams=True,  # on a busy machine a print() arrives in two messages, its line break in the second
    )  # fmt: skip
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError) as error:
        print(error)
        return 1
    finally:
        nbformat.write(nb, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
