"""`bench`: two networks on every engine, in interleaved races. Prints the tables and writes artifacts/bench.json."""

import json

from helpers import bench, contenders, paths
from helpers.artifacts import require
from helpers.data import test_set
from helpers.model import load_weights


def main(_options, _rest):
    races = {}
    for title, functions, rounds in entries():
        races[title] = race = bench.race(functions, rounds=rounds, threads=1)
        print(f"\n{title}\n{race}", flush=True)
    file = paths.ARTIFACTS / "bench.json"
    paths.write_text(file, json.dumps({title: race.record() for title, race in races.items()}, indent=2) + "\n")
    print(f"\nThe figures: {paths.short(file)}")
    return 0


def entries():
    """Yields (title, {name: function}, rounds) of each race, made when its turn comes."""
    images, _ = test_set()
    files = [require(f"mnist_cnn.{kind}") for kind in ("mnn", "onnx")]
    model = load_weights(require("mnist_cnn.pt"))
    for batch, rounds in ((1, 200), (64, 60)):
        yield f"Course network, batch {batch}", contenders.contenders(*files, model, images[:batch]), rounds
    files = [require(f"mobilenet_v2.{kind}") for kind in ("mnn", "onnx")]
    functions = contenders.contenders(*files, contenders.mobilenet_v2(), contenders.image_for_mobilenet())
    yield "MobileNetV2, batch 1", functions, 40
