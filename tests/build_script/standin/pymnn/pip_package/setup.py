"""Builds the stand-in's wheel. Like MNN's: only in this folder, only after the libraries were built."""

import os
from pathlib import Path

from setuptools import find_packages, setup

root = Path(os.getcwd()).parents[1]
build = root / "pymnn_build"
define = (root / "include" / "MNN" / "MNNDefine.h").read_text()
version = ".".join(line.split()[-1] for line in define.splitlines() if "MNN_VERSION_" in line)
for needed in (build, build / "tools" / "converter"):
    if not list(needed.glob("libMNN*")):
        raise SystemExit(f"error: cannot find -lMNN in {needed}")
llm = "MNN_BUILD_LLM:BOOL=ON" in (build / "CMakeCache.txt").read_text()

setup(
    name="MNN",
    version=version,
    description="stand-in, not MNN",
    long_description=Path("README.md").read_text(),
    packages=[name for name in find_packages() if llm or name != "MNN.llm"],
    py_modules=["_mnncengine", "_tools"],
    install_requires=["numpy"],
)
