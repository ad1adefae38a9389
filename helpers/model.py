"""The digit classifier of the course: the network, its training loop, and the weights that come with the course."""

import json

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .data import DataError, arrays, normalize, sha256, verify_file
from .paths import DATA, atomic_write, short, write_text

PRETRAINED = DATA / "pretrained" / "mnist_cnn.pt"


class MnistCNN(nn.Module):
    """Two Conv-BatchNorm-ReLU-MaxPool blocks, then Linear-ReLU-Dropout-Linear.

    Input float32 [N, 1, 28, 28], normalized with MEAN and STD; output float32 logits [N, 10].
    """

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 128),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(128, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def train(model, *, epochs=3, batch_size=256, learning_rate=1e-2, label_smoothing=0.05, seed=0):
    """Train `model` in place on the 60,000 training images, yielding after every step.

    AdamW with the one-cycle schedule (Smith & Topin 2018, arXiv:1708.07120) and label smoothing (Szegedy et al. 2015,
    arXiv:1512.00567). Yields dicts: step and steps (ints from 1), epoch (fraction of epochs done), loss (float, mean
    cross-entropy of the batch in nats), accuracy (of the batch, 0 to 1), learning_rate. The same seed on the same
    machine with the same number of threads gives the same weights, when the model was made from the same seed too.
    The model is left in training mode.
    """
    images, labels = arrays(train=True)
    # channels_last is the order in memory, not the shape: convolutions run nearly twice as fast in it on x86.
    images = torch.from_numpy(normalize(images)).contiguous(memory_format=torch.channels_last)
    labels = torch.from_numpy(labels)
    model.to(memory_format=torch.channels_last).train()
    steps = epochs * -(-len(images) // batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    torch.manual_seed(seed)  # Dropout
    shuffle = torch.Generator().manual_seed(seed)
    step = 0
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=shuffle).split(batch_size):
            logits = model(images[batch])
            loss = F.cross_entropy(logits, labels[batch], label_smoothing=label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            yield {
                "step": step, "steps": steps, "epoch": step / steps * epochs, "loss": loss.item(),
                "accuracy": (logits.argmax(1) == labels[batch]).float().mean().item(),
                "learning_rate": schedule.get_last_lr()[0],
            }  # fmt: skip


@torch.inference_mode()
def predict_logits(model, images, batch_size=1000):
    """Logits of `model` in evaluation mode, arrays float32 [N, 1, 28, 28] → [N, 10]. Its mode is put back."""
    training = model.training
    model.eval()
    try:
        return np.concatenate([model(batch).numpy() for batch in torch.from_numpy(images).split(batch_size)])
    finally:
        model.train(training)


def evaluate(model, images, labels):
    """Top-1 accuracy, 0 to 1: the share of `images` (float32 [N, 1, 28, 28]) whose largest logit is at `labels` [N]."""
    return float((predict_logits(model, images).argmax(axis=1) == labels).mean())


def save_weights(model, path):
    """Save the weights (state_dict) to `path`, atomically, in the plain memory order."""
    weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    with atomic_write(path) as temporary:
        torch.save(weights, temporary)


def load_weights(path):
    """A MnistCNN in evaluation mode with the weights saved at `path`.

    Raises FileNotFoundError, or DataError when the file holds anything else (it is never executed: weights_only).
    """
    if not path.exists():
        raise FileNotFoundError(f"{short(path)} does not exist. Run notebook 01, or use load_pretrained().")
    model = MnistCNN()
    try:
        model.load_state_dict(torch.load(path, weights_only=True))
    except Exception as error:
        raise DataError(
            f"{short(path)} does not hold the weights of a MnistCNN: {str(error).splitlines()[0]} "
            "Delete it and run notebook 01 again."
        ) from error
    return model.eval()


def load_pretrained(path=PRETRAINED):
    """The course's own trained MnistCNN in evaluation mode. Raises DataError unless the file matches its manifest."""
    verify_file(path, manifest(path)["sha256"])
    return load_weights(path)


def manifest(path=PRETRAINED):
    """What is recorded about the shipped weights: sha256, accuracy on the 10,000 test images, settings, versions."""
    listing = path.with_name("manifest.json")
    if not listing.exists():
        raise DataError(f"{short(listing)} is missing. Bring it back with `git checkout -- data`.")
    return json.loads(listing.read_text())[path.name]


def publish(model, accuracy, path=PRETRAINED):
    """Make `model` the course's shipped weights: save them and their manifest (the author's step after notebook 01)."""
    save_weights(model, path)
    record = {"sha256": sha256(path), "accuracy": accuracy, "parameters": sum(p.numel() for p in model.parameters()),
              "made_by": "notebooks/01_train.ipynb", "torch": torch.__version__.split("+")[0]}  # fmt: skip
    write_text(path.with_name("manifest.json"), json.dumps({path.name: record}, indent=2) + "\n")
