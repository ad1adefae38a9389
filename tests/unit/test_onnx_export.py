import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tiny_onnx import save_onnx
from torch import nn

from helpers.model import MnistCNN, predict_logits
from helpers.onnx_export import export_onnx, files, summary


def answers(path, x):
    return onnxruntime.InferenceSession(path).run(None, {"input": x})[0]


@pytest.mark.parametrize("dynamo", [True, False])
def test_the_exported_network_answers_as_pytorch_for_any_batch(tmp_path, rng, dynamo):
    torch.manual_seed(0)
    model = MnistCNN()
    found = export_onnx(model, tmp_path / "m.onnx", dynamo=dynamo)
    assert found.inputs == {"input": ("batch", 1, 28, 28)} and found.outputs == {"logits": ("batch", 10)}
    for batch in (1, 5):
        x = rng.normal(size=(batch, 1, 28, 28)).astype(np.float32)
        np.testing.assert_allclose(answers(tmp_path / "m.onnx", x), predict_logits(model, x), atol=1e-5)


def test_a_fixed_batch_stays_fixed(tmp_path):
    found = export_onnx(MnistCNN(), tmp_path / "m.onnx", dynamic_batch=False)
    assert found.inputs == {"input": (1, 1, 28, 28)}


def test_a_module_in_training_mode_is_exported_in_evaluation_mode_and_left_as_it_was(tmp_path, rng):
    model = MnistCNN().train()
    before = model.features[1].running_mean.clone()
    found = export_onnx(model, tmp_path / "m.onnx")
    assert model.training and torch.equal(model.features[1].running_mean, before)
    assert "Dropout" not in found.ops
    x = rng.normal(size=(2, 1, 28, 28)).astype(np.float32)
    np.testing.assert_allclose(answers(tmp_path / "m.onnx", x), predict_logits(model, x), atol=1e-5)


def test_the_opset_that_was_asked_for_is_in_the_file(tmp_path):
    export_onnx(MnistCNN(), tmp_path / "m.onnx", dynamo=False, opset=13)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == summary(tmp_path / "m.onnx").opset == 13


def test_external_weights_lie_beside_the_file_and_count(tmp_path):
    found = export_onnx(MnistCNN(), tmp_path / "m.onnx", external_data=True)
    assert [file.name for file in files(tmp_path / "m.onnx")] == ["m.onnx", "m.onnx.data"]
    assert found.bytes == sum(file.stat().st_size for file in tmp_path.iterdir()) > 4 * 200_000
    assert answers(tmp_path / "m.onnx", np.zeros((1, 1, 28, 28), np.float32)).shape == (1, 10)


def test_a_failed_export_leaves_the_older_file(tmp_path):
    class Stubborn(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    (tmp_path / "m.onnx").write_bytes(b"older")
    with pytest.raises(Exception, match="no"):
        export_onnx(Stubborn(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"older" and len(list(tmp_path.iterdir())) == 1


def test_parameters_and_macs_are_those_one_counts_by_hand(tmp_path):
    found = export_onnx(MnistCNN(), tmp_path / "m.onnx")
    weights = (16 * 9 + 16) + (32 * 16 * 9 + 32) + (1568 * 128 + 128) + (128 * 10 + 10)
    assert found.parameters == weights == 206_922  # BatchNorm is folded into the convolutions
    macs = 28 * 28 * 16 * 9 + 14 * 14 * 32 * 16 * 9 + 1568 * 128 + 128 * 10
    assert found.macs == macs == 1_218_048
    assert "total" in str(found) and "batch×16×28×28" in str(found)


def test_macs_of_a_grouped_strided_convolution_and_a_matmul(tmp_path):
    path = save_onnx(
        tmp_path / "g.onnx",
        [("Conv", ["x", "w"], ["c"], {"group": 2, "strides": [2, 2]}), ("MatMul", ["c", "m"], ["y"])],
        {"x": ("float32", [1, 4, 9, 9])},
        {"y": ("float32", [1, 6, 4, 7])},
        {"w": np.zeros((6, 2, 3, 3), np.float32), "m": np.zeros((4, 7), np.float32)},
    )
    assert [node.macs for node in summary(path).nodes] == [6 * 4 * 4 * 2 * 9, 6 * 4 * 7 * 4]
