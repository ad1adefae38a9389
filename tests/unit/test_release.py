"""A release that proves what it is, and every way to spoil it."""

import json
import shutil

import numpy as np
import pytest

from helpers import native
from helpers.convert import convert_onnx
from helpers.data import sha256
from helpers.data import test_set as digits
from helpers.release import ReleaseError, bundle, verify
from helpers.runtime import MnnModule, OrtModel


@pytest.fixture(scope="module")
def original(course, tmp_path_factory):
    model = convert_onnx(course / "mnist_cnn.onnx", tmp_path_factory.mktemp("w4") / "w4.mnn", weight_bits=4).path
    images, labels = (array[:600] for array in digits())
    folder = tmp_path_factory.mktemp("release") / "mnist v1"
    return bundle(model, onnx_path=course / "mnist_cnn.onnx", weights_path=course / "mnist_cnn.pt", images=images,
                  labels=labels, folder=folder, rule="the smallest", calibration_count=3)  # fmt: skip


@pytest.fixture
def release(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def test_a_release_is_in_order_and_says_what_it_is(release, course):
    found = verify(release)
    images, labels = (array[:600] for array in digits())
    answers, reference = MnnModule(release / "w4.mnn")(images), OrtModel(course / "mnist_cnn.onnx")(images)
    parity = found.manifest["parity"]
    assert parity["accuracy"] == pytest.approx((answers.argmax(1) == labels).mean())
    assert parity["max_abs"] == pytest.approx(np.abs(answers - reference).max(), abs=1e-4)
    assert found.manifest["rule"] == "the smallest" and found.manifest["versions"]["MNN"] == "3.6.1"
    assert "as released: 64 of 64" in found.checked and "in order" in str(found)
    assert sha256(release / "mnist_cnn.pt") == sha256(course / "mnist_cnn.pt")
    assert len((release / "calibration.sha256").read_text().splitlines()) == 3


@pytest.mark.parametrize("name", ["w4.mnn", "mnist_cnn.onnx", "mnist_cnn.pt", "check.py", "snapshot.npz"])
def test_one_changed_byte_is_refused_with_the_files_name(release, name):
    content = bytearray((release / name).read_bytes())
    content[len(content) // 2] ^= 1
    (release / name).write_bytes(content)
    with pytest.raises(ReleaseError, match=f"{name} was changed") as caught:
        verify(release)
    assert caught.value.files == [name]


def test_a_changed_manifest_is_refused(release):
    text = (release / "manifest.json").read_text()
    (release / "manifest.json").write_text(text.replace("the smallest", "the nicest"))
    with pytest.raises(ReleaseError, match="manifest.json was changed"):
        verify(release)


def test_missing_and_added_files_are_named(release):
    (release / "mnist_cnn.onnx").unlink()
    (release / "extra.txt").write_text("hello")
    with pytest.raises(ReleaseError) as caught:
        verify(release)
    assert caught.value.files == ["extra.txt", "mnist_cnn.onnx"]
    with pytest.raises(ReleaseError, match="not a release"):
        verify(release / "nowhere")


def reseal(release, manifest):
    (release / "manifest.json").write_text(json.dumps(manifest))
    (release / "manifest.sha256").write_text(f"{sha256(release / 'manifest.json')}  manifest.json\n")


def test_a_model_of_another_conversion_is_refused_although_all_checksums_fit(release, course):
    again = convert_onnx(course / "mnist_cnn.onnx", release / "w4.mnn", weight_bits=4)
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["files"]["w4.mnn"] = {"bytes": again.mnn_bytes, "sha256": sha256(release / "w4.mnn")}
    reseal(release, manifest)
    with pytest.raises(ReleaseError, match="carries the UUID"):
        verify(release)


def test_the_regression_script_notices_answers_that_moved(release):
    with np.load(release / "snapshot.npz") as snapshot:
        arrays = dict(snapshot)
    arrays["outputs"] = arrays["outputs"] + np.float32(0.01)
    np.savez_compressed(release / "snapshot.npz", **arrays)
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["files"]["snapshot.npz"]["sha256"] = sha256(release / "snapshot.npz")
    reseal(release, manifest)
    with pytest.raises(ReleaseError, match="check.py ended with exit code 1"):
        verify(release)


def test_the_regression_script_needs_neither_torch_nor_the_course(release):
    source = (
        "import runpy, sys; [sys.modules.__setitem__(name, None) for name in ('torch', 'onnx', 'helpers')]\n"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    finished = native.run_snippet(source, str(release / "check.py"))
    assert finished.returncode == 0 and "as released" in finished.log


def test_a_missing_source_is_named_and_an_older_release_stays(original, course):
    before = sha256(original / "manifest.json")
    with pytest.raises(FileNotFoundError, match="none.mnn"):
        bundle(course / "none.mnn", onnx_path=course / "mnist_cnn.onnx", weights_path=course / "mnist_cnn.pt",
               images=None, labels=None, folder=original)  # fmt: skip
    assert sha256(original / "manifest.json") == before
