import os

import pytest
import torch

from helpers.artifacts import require
from helpers.data import sha256
from helpers.model import PRETRAINED, MnistCNN, save_weights


def test_a_missing_artifact_is_made_from_what_precedes_it_and_says_so(tmp_path, capsys):
    path = require("mnist_cnn.onnx", tmp_path)
    assert path == tmp_path / "mnist_cnn.onnx" and path.stat().st_size > 800_000
    assert sha256(tmp_path / "mnist_cnn.pt") == sha256(PRETRAINED)
    out = capsys.readouterr().out
    assert "made from data/pretrained/mnist_cnn.pt" in out and out.count("made from") == 2


def test_what_is_there_is_reused_untouched(tmp_path, capsys):
    (tmp_path / "mnist_cnn.onnx").write_bytes(b"the learner's own")
    assert require("mnist_cnn.onnx", tmp_path).read_bytes() == b"the learner's own"
    assert "reused (17 bytes)" in capsys.readouterr().out and len(list(tmp_path.iterdir())) == 1


def test_what_is_older_than_the_learners_new_weights_is_made_again(tmp_path, capsys):
    old = require("mnist_cnn.onnx", tmp_path).read_bytes()
    torch.manual_seed(1)
    save_weights(MnistCNN(), tmp_path / "mnist_cnn.pt")
    os.utime(tmp_path / "mnist_cnn.onnx", (1, 1))
    assert require("mnist_cnn.onnx", tmp_path).read_bytes() != old
    assert "made again, since what it was made from is newer, from" in capsys.readouterr().out


def test_an_unknown_artifact_is_named_with_those_there_are():
    with pytest.raises(KeyError, match="No recipe makes 'resnet.mnn'.*mnist_cnn_fp16.mnn"):
        require("resnet.mnn")
