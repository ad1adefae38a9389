"""The stand-in's converter: copies the ONNX file, and returns True whatever happened, as MNN's does."""

import shutil
from pathlib import Path


def mnnconvert(arguments):
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    if options["-f"] == "ONNX" and Path(options["--modelFile"]).exists():
        shutil.copyfile(options["--modelFile"], options["--MNNModel"])
    return True
