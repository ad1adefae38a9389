"""The stand-in's engine: ONNX Runtime behind MNN's names."""

from importlib.metadata import version as installed_version
from pathlib import Path


class Model:
    def __init__(self, path):
        import onnxruntime

        self.session = onnxruntime.InferenceSession(Path(path).read_bytes())

    def run(self, inputs, outputs):
        return self.session.run(outputs, inputs)


def version():
    return installed_version("MNN")
