from _mnncengine import Model

from ..expr import Variable


class Module:
    def __init__(self, path, inputs, outputs):
        self.model, self.inputs, self.outputs = Model(path), inputs, outputs

    def onForward(self, variables):  # noqa: N802 (MNN's name)
        arrays = {name: variable.read() for name, variable in zip(self.inputs, variables, strict=True)}
        return [Variable(array) for array in self.model.run(arrays, self.outputs)]


def load_module_from_file(path, inputs, outputs):
    return Module(path, inputs, outputs)
