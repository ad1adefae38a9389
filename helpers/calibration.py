"""What MNN's quantizer is fed: samples checked and written as it wants them, its settings read before it runs.

The quantizer itself checks nothing: a folder that is missing or an image with too few channels is a crash, or a model
that was left as it was.
"""

import json
from pathlib import Path

import numpy as np

from . import native
from .paths import short

CHANNELS = {"GRAY": 1, "RGB": 3, "BGR": 3, "RGBA": 4, "BGRA": 4}
"""The image formats of MNN's quantizer, and how many channels each gives."""


class CalibrationError(native.ToolError):
    """The quantizer did not produce the INT8 model that was asked for. `log` holds all it printed."""


def checked_samples(samples, spec, image, input_range):
    """The samples as float32 [N, ...]; raises CalibrationError with what is wrong with them.

    samples: array, or a folder of images that `image` ({"format", "mean", "normal"}) says how to read; spec: TensorSpec
    of the model's input; input_range: (smallest, largest) value in use, or None.
    """
    if isinstance(samples, (str, Path)):
        samples = _read_images(Path(samples), spec, image)
    samples = np.asarray(samples)
    if samples.size == 0:
        raise CalibrationError("There are no samples. Give some tens to some hundreds, as the model is fed in use.")
    wanted = spec.shape[1:]
    if samples.ndim != len(spec.shape) or any(
        isinstance(side, int) and side != size for side, size in zip(wanted, samples.shape[1:], strict=True)
    ):
        raise CalibrationError(f"The samples have the shape {list(samples.shape)}; the model's input is {spec}.")
    if samples.dtype.kind != "f":
        raise CalibrationError(
            f"The samples are {samples.dtype}: raw pixels? Give them the preprocessing that the model gets in use."
        )
    if not np.isfinite(samples).all():
        raise CalibrationError("The samples contain NaN or infinity; no range can be derived from them.")
    low, high = float(samples.min()), float(samples.max())
    if low == high:
        raise CalibrationError(f"All values of all samples are {low:g}; no range can be derived from them.")
    if input_range is not None:
        smallest, largest = input_range
        slack = 0.02 * (largest - smallest)
        inside = low >= smallest - slack and high <= largest + slack
        if not inside or high - low < 0.5 * (largest - smallest):
            raise CalibrationError(
                f"The samples go from {low:.2f} to {high:.2f}; the model sees {smallest:.2f} to {largest:.2f} in use. "
                "Give them the same preprocessing."
            )
    return samples.astype(np.float32)


def _read_images(folder, spec, image):
    from PIL import Image, UnidentifiedImageError

    if not folder.is_dir():
        raise CalibrationError(f"The image folder {short(folder)} does not exist. (MNN's own tool would crash here.)")
    if not image or image.get("format") not in CHANNELS:
        raise CalibrationError(f'A folder of images needs image={{"format": …}}, one of {", ".join(CHANNELS)}.')
    if len(spec.shape) != 4 or spec.shape[1] not in (CHANNELS[image["format"]], None):
        raise CalibrationError(
            f"The format {image['format']} gives {CHANNELS[image['format']]} channels; the model's input is {spec}."
        )
    order = {"GRAY": "L", "BGR": "RGB", "BGRA": "RGBA"}.get(image["format"], image["format"])
    size = spec.shape[3], spec.shape[2]
    arrays = []
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        try:
            picture = Image.open(path).convert(order)
        except (UnidentifiedImageError, OSError):
            raise CalibrationError(f"{short(path)} is not an image. Keep nothing else in that folder.") from None
        if all(isinstance(side, int) for side in size):
            picture = picture.resize(size)
        array = np.atleast_3d(np.asarray(picture, np.float32))
        if image["format"].startswith("BGR"):
            array[..., :3] = array[..., 2::-1]
        array = (array - np.float32(image.get("mean", 0))) * np.float32(image.get("normal", 1))
        arrays.append(array.transpose(2, 0, 1))
    if not arrays:
        raise CalibrationError(f"The image folder {short(folder)} is empty. (MNN's own tool would crash here.)")
    return np.stack(arrays)


def write_sequences(samples, folder, spec):
    """One folder for each sample with <input>.txt and input.json, as the quantizer's "sequence" input wants it.

    samples: float32 [N, ...]. Returns the settings that tell the quantizer where they are.
    """
    for number, sample in enumerate(samples):
        place = folder / f"{number:06}"
        place.mkdir(parents=True)
        rows = sample.reshape(-1, sample.shape[-1] if sample.ndim else 1)
        np.savetxt(place / f"{spec.name}.txt", rows, fmt="%.9g")
        shape = {"name": spec.name, "shape": [1, *sample.shape]}
        (place / "input.json").write_text(json.dumps({"inputs": [shape]}), encoding="utf-8")
    return {"input_type": "sequence", "path": f"{folder.as_posix()}/", "used_sample_num": len(samples)}


def write_images(samples, folder, spec):
    """PNG files, 256 steps from the samples' smallest to their largest value: exact for what came from 8-bit pixels.

    samples: float32 [N, 1 or 3, height, width], else CalibrationError. Returns the settings that name and undo it.
    """
    from PIL import Image

    if samples.ndim != 4 or samples.shape[1] not in (1, 3):
        raise CalibrationError(
            f"EMA with batches reads images: [N, 1 or 3, height, width]. The model's input is {spec}. Use batch_size=1."
        )
    folder.mkdir()
    low, step = float(samples.min()), float(samples.max() - samples.min()) / 255
    pixels = np.rint((samples - low) / step).astype(np.uint8).transpose(0, 2, 3, 1)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture.squeeze(-1) if picture.shape[-1] == 1 else picture).save(folder / f"{number:06}.png")
    channels, height, width = samples.shape[1:]
    return {
        "format": "GRAY" if channels == 1 else "RGB", "mean": [-low / step] * channels, "normal": [step] * channels,
        "width": width, "height": height, "path": f"{folder.as_posix()}/", "used_image_num": len(samples),
    }  # fmt: skip


def read_config(path, spec):
    """The quantizer's settings, and what must go wrong with them, in words (None: nothing we know of)."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, f"the settings {short(path)} do not exist."
    except (ValueError, IsADirectoryError, PermissionError) as error:
        return {}, f"the settings {short(path)} are not JSON ({error})."
    method = config.setdefault("feature_quantize_method", "KL")
    if method not in ("KL", "EMA", "ADMM"):
        return config, f'feature_quantize_method {method!r} does not exist; write "KL" or "EMA", in capitals.'
    folder = Path(config.get("path", ""))
    if not config.get("path") or not folder.is_dir():
        return config, f"the folder of samples, {config.get('path') or '(none given)'}, does not exist."
    if not any(not entry.name.startswith(".") for entry in folder.iterdir()):
        return config, f"the folder of samples, {config['path']}, is empty."
    fixed = spec.shape[0]
    if method == "EMA" and isinstance(fixed, int) and config.get("batch_size", 32) > fixed:
        return config, (
            f"EMA with a batch of {config.get('batch_size', 32)} needs a model with a dynamic batch; this one's is "
            f"fixed at {fixed}. Export it with dynamic_batch=True, or set batch_size to {fixed}."
        )
    if config.get("input_type") != "sequence" and len(spec.shape) == 4:
        given = CHANNELS.get(config.get("format", "BGR")), config.get("height"), config.get("width")
        if any(isinstance(side, int) and side != found for side, found in zip(spec.shape[1:], given, strict=True)):
            return config, (
                f"format {config.get('format', 'BGR (the default)')} with height {given[1]} and width {given[2]} gives "
                f"[{given[0]}, {given[1]}, {given[2]}]; the model's input is {spec}. Nothing would be quantized."
            )
    return config, None
