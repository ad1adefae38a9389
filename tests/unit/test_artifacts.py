import pytest

from helpers.artifacts import require
from helpers.data import sha256
from helpers.model import PRETRAINED


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


def test_an_unknown_artifact_is_named_with_those_there_are():
    with pytest.raises(KeyError, match="No recipe makes 'resnet.mnn'.*mnist_cnn_fp16.mnn"):
        require("resnet.mnn")
