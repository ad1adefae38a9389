"""The chain of files that the notebooks make: whichever is missing is made from what precedes it.

mnist_cnn.pt → mnist_cnn.onnx → mnist_cnn.mnn, mnist_cnn_fp16.mnn, mnist_cnn_w8.mnn, mnist_cnn_w4.mnn
                                 mnist_cnn.mnn → mnist_cnn_int8.mnn
torchvision's MobileNetV2 → mobilenet_v2.onnx → mobilenet_v2.mnn
"""

import shutil

from .paths import ARTIFACTS, atomic_write, short


def require(name, folder=ARTIFACTS):
    """Path of the artifact `name` in `folder`: reused, or made when missing or outdated, and says which.

    Raises KeyError for an unknown name.
    """
    if name not in _RECIPES:
        raise KeyError(f"No recipe makes {name!r}; there are recipes for {', '.join(_RECIPES)}.")
    path = folder / name
    if _up_to_date(name, folder):
        print(f"{short(path)}: reused ({path.stat().st_size:,} bytes)")
        return path
    why = "made again, since what it was made from is newer," if path.exists() else "made"
    source, recipe = _RECIPES[name]
    source = source and require(source, folder)
    recipe(source, path)
    origin = short(source) if source else _ORIGINS[name]
    print(f"{short(path)}: {why} from {origin} ({path.stat().st_size:,} bytes)")
    return path


def _up_to_date(name, folder):
    """Whether the file is there and, as far as they are there too, none of those it was made from is newer."""
    path = folder / name
    source = _RECIPES[name][0]
    if source is None or not (folder / source).exists():
        return path.exists()
    return path.exists() and (folder / source).stat().st_mtime <= path.stat().st_mtime and _up_to_date(source, folder)


def _pretrained():
    from .model import PRETRAINED

    return PRETRAINED


def _copy_weights(_, path):
    from .model import load_pretrained

    load_pretrained()  # checks the file
    with atomic_write(path) as temporary:
        shutil.copyfile(_pretrained(), temporary)


def _export(**settings):
    def recipe(source, path):
        from .model import load_weights
        from .onnx_export import export_onnx

        export_onnx(load_weights(source), path, **settings)

    return recipe


def _export_mobilenet(_, path):
    import torch

    from .contenders import mobilenet_v2
    from .onnx_export import export_onnx

    export_onnx(mobilenet_v2(), path, example=torch.zeros(1, 3, 224, 224), dynamic_batch=False)


def _convert(**settings):
    def recipe(source, path):
        from .convert import convert_onnx

        convert_onnx(source, path, **settings)

    return recipe


def _calibrate(source, path):
    from .quantize import make_int8

    make_int8(source, path)


_RECIPES = {
    "mnist_cnn.pt": (None, _copy_weights),
    "mnist_cnn.onnx": ("mnist_cnn.pt", _export()),
    "mnist_cnn_batch1.onnx": ("mnist_cnn.pt", _export(dynamic_batch=False)),
    "mnist_cnn.mnn": ("mnist_cnn.onnx", _convert()),
    "mnist_cnn_fp16.mnn": ("mnist_cnn.onnx", _convert(fp16=True)),
    "mnist_cnn_w8.mnn": ("mnist_cnn.onnx", _convert(weight_bits=8)),
    "mnist_cnn_w4.mnn": ("mnist_cnn.onnx", _convert(weight_bits=4, asymmetric=True)),
    "mnist_cnn_int8.mnn": ("mnist_cnn.mnn", _calibrate),
    "mobilenet_v2.onnx": (None, _export_mobilenet),
    "mobilenet_v2.mnn": ("mobilenet_v2.onnx", _convert()),
}
"""name: (what it is made from, the function that makes it from that)."""

_ORIGINS = {
    "mnist_cnn.pt": "data/pretrained/mnist_cnn.pt",
    "mobilenet_v2.onnx": "torchvision's MobileNetV2, seeded random weights",
}
"""What the artifacts that are made from no other one come from."""
