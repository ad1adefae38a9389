"""The same network and the same input on every engine, as functions without arguments, ready for bench.race()."""

import numpy as np

from .distance import compare
from .runtime import MnnModule, MnnSession, OrtModel, TorchModel

BARE, SESSION, MODULE, ORT, TORCH = (
    "MNN, bare runSession", "MnnSession", "MnnModule", "ONNX Runtime", "PyTorch",
)  # fmt: skip


def contenders(mnn_path, onnx_path, module, array, *, threads=1):
    """{name: function}, the first of them MNN's runSession() alone, without copies in and out: what the engine costs.

    module: the PyTorch module both files were made from. array: the input, as the ONNX model wants it. threads: of
    every engine; PyTorch's number is set for the whole process. Raises RuntimeError when an engine's answer differs
    from PyTorch's: a wrong answer is not worth timing.
    """
    import torch

    torch.set_num_threads(threads)
    session = MnnSession(mnn_path, threads=threads)
    models = {
        SESSION: session,
        MODULE: MnnModule(mnn_path, threads=threads),
        ORT: OrtModel(onnx_path, threads=threads),
        TORCH: TorchModel(module),
    }
    reference = models[TORCH](array)
    scale = float(np.abs(reference).max())
    for name, model in models.items():
        parity = compare(reference / scale, model(array) / scale, atol=1e-4)
        if not parity.ok:
            raise RuntimeError(f"{name} does not answer as PyTorch does, so its time means nothing: {parity}")
    return {BARE: session.bare(), **{name: _on(model, array) for name, model in models.items()}}


def _on(model, array):
    return lambda: model(array)


def mobilenet_v2():
    """torchvision's MobileNetV2 with seeded random weights, in evaluation mode: [N, 3, 224, 224] → [N, 1000].

    Its speed is that of a trained one; its answers mean nothing. BatchNorm's statistics are those of a batch of noise:
    left at 0 and 1, the signal would fade to 1e-9 on its way, and comparing answers would prove nothing.
    """
    import torch
    import torchvision

    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = torchvision.models.mobilenet_v2(weights=None)
        for layer in model.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 1.0
        model.train()(torch.randn(4, 3, 224, 224))
        return model.eval()


def image_for_mobilenet():
    """A seeded random input for it, float32 [1, 3, 224, 224]."""
    return np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
