import gzip
import shutil
import struct

import numpy as np
import pytest

from helpers import data
from helpers.data import (
    MEAN,
    MNIST,
    STD,
    DataError,
    arrays,
    calibration_samples,
    idx_folder,
    mnist,
    normalize,
)

TRAIN_IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def source(tmp_path):
    """A copy of the shipped files that a test may spoil."""
    return shutil.copytree(MNIST, tmp_path / "mnist source")


def test_arrays_are_what_the_idx_files_hold():
    images, labels = arrays(train=False)
    with gzip.open(MNIST / "t10k-images-idx3-ubyte.gz") as file:
        magic, count, rows, columns = struct.unpack(">4i", file.read(16))
        pixels = np.frombuffer(file.read(), np.uint8)
    assert (magic, count, rows, columns) == (2051, 10_000, 28, 28)
    np.testing.assert_array_equal(images, pixels.reshape(count, rows, columns))
    assert labels.dtype == np.int64 and np.bincount(labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip


def test_mean_and_std_are_those_of_the_training_pixels():
    pixels = arrays(train=True)[0] / 255
    assert round(pixels.mean(), 4) == MEAN and round(pixels.std(), 4) == STD


def test_the_torchvision_data_set_has_both_parts():
    assert len(mnist(train=True)) == 60_000
    image, label = mnist(train=False)[0]
    assert image.size == (28, 28) and label == 7


def test_normalize_agrees_with_torchvisions_transforms():
    from torchvision.transforms.v2 import functional as F

    images, _ = arrays(train=False)
    expected = F.normalize(F.to_image(images[0][..., None]).float() / 255, [MEAN], [STD])
    np.testing.assert_allclose(normalize(images[:1])[0], expected.numpy(), atol=1e-6)
    assert normalize(images[:3]).shape == (3, 1, 28, 28) and normalize(images[:3]).dtype == np.float32


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 28, 28)), np.zeros((28, 28), np.uint8), np.zeros((2, 28, 27), np.uint8)]
)
def test_normalize_refuses_what_is_not_raw_pixels(wrong):
    with pytest.raises(ValueError, match=r"expects uint8 images \[N, 28, 28\], found .*Pass the raw pixels"):
        normalize(wrong)


def test_the_test_set_is_ready_for_the_network():
    images, labels = data.test_set()
    assert images.shape == (10_000, 1, 28, 28) and images.dtype == np.float32 and labels.shape == (10_000,)
    assert images.min() == pytest.approx(-MEAN / STD) and images.max() == pytest.approx((1 - MEAN) / STD)


def test_calibration_samples_are_training_images_without_repetition():
    samples = calibration_samples(50)
    assert samples.shape == (50, 1, 28, 28) and len(np.unique(samples, axis=0)) == 50
    np.testing.assert_array_equal(samples, calibration_samples(50))
    with pytest.raises(ValueError, match="from 1 to 60000, found 0"):
        calibration_samples(0)


def test_a_missing_file_is_named_with_its_remedy(source, tmp_path):
    (source / f"{TRAIN_IMAGES}.gz").unlink()
    with pytest.raises(DataError, match=rf"{TRAIN_IMAGES}.gz is missing; expected .*git checkout"):
        idx_folder(source, tmp_path / "out")


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_file_is_named_with_both_checksums(source, tmp_path, damage):
    file = source / f"{TRAIN_IMAGES}.gz"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        del content[-1000:]
    else:
        content[5000] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{TRAIN_IMAGES}.gz is damaged: expected SHA-256 0b36.*, found .*git checkout"
    ):
        idx_folder(source, tmp_path / "out")
    assert not (tmp_path / "out" / "MNIST" / "raw" / TRAIN_IMAGES).exists()


def test_a_missing_list_of_checksums_is_an_error(source, tmp_path):
    (source / "checksums.sha256").unlink()
    with pytest.raises(DataError, match="checksums.sha256 is missing"):
        idx_folder(source, tmp_path / "out")


def test_a_spoilt_decompressed_file_is_made_again(tmp_path):
    target = idx_folder(target=tmp_path)
    labels = target / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(b"garbage")
    idx_folder(target=tmp_path)
    assert labels.stat().st_size == 10_008
