"""What a measured time belongs to: the processor, what else it had to do, and the versions of what was measured."""

import importlib.metadata
import os
import platform

from . import cpu

PACKAGES = ("numpy", "torch", "onnxruntime", "MNN")


def environment():
    """cpu, features, cores usable by this process, load (None where the system does not tell), system, versions."""
    processor = cpu.describe()
    return {
        "cpu": processor.model,
        "features": [name for name, there in processor.features.items() if there],
        "cores": cpu.usable_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in PACKAGES},
    }


def describe(environment):
    """An environment in two lines."""
    features = ", ".join(environment["features"]) or "no features known"
    busy = "" if environment["load"] is None else f", load {environment['load']:.1f}"
    versions = ", ".join(f"{package} {environment[package]}" for package in PACKAGES)
    return (
        f"{environment['cpu']} ({features}), {environment['cores']} cores{busy}\n"
        f"Python {environment['python']}, {versions}"
    )
