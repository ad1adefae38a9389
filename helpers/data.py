"""MNIST, read from the four files in `data/mnist/`, as a torchvision data set and as numpy arrays."""

import gzip
import hashlib
import shutil

import numpy as np

from .paths import ARTIFACTS, DATA, atomic_write, short

MEAN, STD = 0.1307, 0.3081
"""Mean and standard deviation of the 60,000 training images' pixels in [0, 1]; notebook 01 computes them."""

MNIST = DATA / "mnist"


class DataError(RuntimeError):
    """A data file is missing or is not the one the course ships."""


def sha256(path):
    """SHA-256 of a file, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(folder=MNIST):
    """{file name: SHA-256} from `checksums.sha256` in `folder`: the .gz files and, once decompressed, the IDX files."""
    listing = folder / "checksums.sha256"
    if not listing.exists():
        raise DataError(f"{short(listing)} is missing. {_REMEDY}")
    return {name: digest for digest, name in (line.split() for line in listing.read_text().splitlines() if line)}


def verify_file(path, expected):
    """Raise DataError unless the file at `path` exists and has the SHA-256 `expected`."""
    if not path.exists():
        raise DataError(f"{short(path)} is missing; expected a file with SHA-256 {expected}. {_REMEDY}")
    found = sha256(path)
    if found != expected:
        raise DataError(f"{short(path)} is damaged: expected SHA-256 {expected}, found {found}. {_REMEDY}")


_REMEDY = "Bring it back with `git checkout -- data` in the project's folder, or clone the project again."


def idx_folder(source=MNIST, target=ARTIFACTS / "mnist"):
    """Decompress the IDX files once into `target`/MNIST/raw, where torchvision looks for them; return `target`.

    Every file is checked: a compressed one before it is read, a decompressed one each time. Raises DataError.
    """
    digests = checksums(source)
    for name in (name for name in digests if not name.endswith(".gz")):
        idx = target / "MNIST" / "raw" / name
        if idx.exists() and sha256(idx) == digests[name]:
            continue
        packed = source / f"{name}.gz"
        verify_file(packed, digests[packed.name])
        with atomic_write(idx) as temporary, gzip.open(packed) as compressed, open(temporary, "wb") as plain:
            shutil.copyfileobj(compressed, plain)
        verify_file(idx, digests[name])
    return target


def mnist(train, transform=None, source=MNIST, target=ARTIFACTS / "mnist"):
    """`torchvision.datasets.MNIST`: 60,000 (train=True) or 10,000 pairs of a 28x28 PIL image and its label."""
    from torchvision.datasets import MNIST as TorchvisionMNIST

    return TorchvisionMNIST(idx_folder(source, target), train=train, transform=transform, download=False)


def arrays(train):
    """Images and labels as numpy arrays: uint8 [N, 28, 28] with 0 = background, and int64 [N]."""
    dataset = mnist(train)
    return dataset.data.numpy(), dataset.targets.numpy()


def normalize(images):
    """What the network is fed: uint8 [N, 28, 28] → float32 [N, 1, 28, 28], (x / 255 - MEAN) / STD.

    Raises ValueError for any other dtype or shape: a float image has most likely been scaled already.
    """
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (28, 28):
        raise ValueError(
            f"normalize() expects uint8 images [N, 28, 28], found {images.dtype} {list(images.shape)}. "
            "Pass the raw pixels from arrays(); for one image add an axis: image[None]."
        )
    return ((images.astype(np.float32) / 255 - MEAN) / STD)[:, None].astype(np.float32)


def test_set():
    """The 10,000 test images ready for the network, and their labels: float32 [10000, 1, 28, 28], int64 [10000]."""
    images, labels = arrays(train=False)
    return normalize(images), labels


def calibration_samples(count, seed=0):
    """`count` normalized training images, drawn without replacement: float32 [count, 1, 28, 28]."""
    images, _ = arrays(train=True)
    if not 1 <= count <= len(images):
        raise ValueError(f"calibration_samples() expects a count from 1 to {len(images)}, found {count}.")
    return normalize(images[np.random.default_rng(seed).choice(len(images), count, replace=False)])
