import json
import shutil

import numpy as np
import pytest
import torch

from helpers import data
from helpers.data import DataError
from helpers.model import (
    PRETRAINED,
    MnistCNN,
    evaluate,
    load_pretrained,
    load_weights,
    manifest,
    predict_logits,
    publish,
    save_weights,
    train,
)


def test_the_network_has_the_parameters_one_counts_by_hand():
    convolutions = (16 * 1 * 9 + 16) + (32 * 16 * 9 + 32)
    batch_norms = 2 * 16 + 2 * 32
    linears = (32 * 7 * 7 * 128 + 128) + (128 * 10 + 10)
    assert sum(p.numel() for p in MnistCNN().parameters()) == convolutions + batch_norms + linears == 207_018 < 300_000


def test_the_shipped_weights_classify_at_least_991_of_1000_test_images_as_their_manifest_says():
    images, labels = data.test_set()
    accuracy = evaluate(load_pretrained(), images, labels)
    assert accuracy >= 0.991
    assert accuracy == pytest.approx(manifest()["accuracy"], abs=2e-4)


def test_evaluate_counts_right_answers_and_puts_the_mode_back():
    model = MnistCNN().train()
    images = np.random.default_rng(0).normal(size=(8, 1, 28, 28)).astype(np.float32)
    labels = predict_logits(model, images).argmax(axis=1)
    assert evaluate(model, images, labels) == 1.0
    assert evaluate(model, images, np.r_[labels[:6], (labels[6:] + 1) % 10]) == 0.75
    assert model.training


def test_training_learns_from_its_first_steps_and_reports_each():
    torch.manual_seed(0)
    steps = []
    for step in train(MnistCNN(), epochs=1, batch_size=500):
        steps.append(step)
        if step["step"] == 20:
            break
    assert [step["step"] for step in steps] == list(range(1, 21)) and steps[0]["steps"] == 120
    assert steps[0]["loss"] > 2.0 and np.mean([step["loss"] for step in steps[-3:]]) < steps[0]["loss"] / 1.5
    assert 0 <= steps[-1]["accuracy"] <= 1


def test_the_same_seed_gives_the_same_losses():
    def losses():
        torch.manual_seed(3)
        run = train(MnistCNN(), epochs=1)
        return [next(run)["loss"] for _ in range(3)]

    assert losses() == losses()


def test_weights_survive_the_round_trip(tmp_path):
    model = MnistCNN().to(memory_format=torch.channels_last)
    save_weights(model, tmp_path / "w.pt")
    loaded = load_weights(tmp_path / "w.pt")
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_file_with_other_content_is_refused_and_never_executed(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no weights")
    (tmp_path / "evil.pt").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR.")
    for name in ("other.pt", "text.pt", "evil.pt"):
        with pytest.raises(DataError, match=f"{name} does not hold the weights of a MnistCNN.*notebook 01"):
            load_weights(tmp_path / name)
    assert not (tmp_path / "owned").exists()
    with pytest.raises(FileNotFoundError, match="nothing.pt does not exist.*notebook 01"):
        load_weights(tmp_path / "nothing.pt")


def test_altered_shipped_weights_are_refused(tmp_path):
    copy = tmp_path / PRETRAINED.name
    shutil.copyfile(PRETRAINED.with_name("manifest.json"), tmp_path / "manifest.json")
    copy.write_bytes(PRETRAINED.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="mnist_cnn.pt is damaged"):
        load_pretrained(copy)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(DataError, match="manifest.json is missing"):
        load_pretrained(copy)


def test_published_weights_load_and_are_described(tmp_path):
    publish(MnistCNN(), 0.5, tmp_path / "mnist_cnn.pt")
    load_pretrained(tmp_path / "mnist_cnn.pt")
    record = json.loads((tmp_path / "manifest.json").read_text())["mnist_cnn.pt"]
    assert record["accuracy"] == 0.5 and record["parameters"] == 207_018
