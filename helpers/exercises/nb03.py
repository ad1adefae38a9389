"""The exercises of notebook 03, and the two graphs with a planted fault. (Reading on spoils the search.)"""

import math
import warnings
from functools import cache

from helpers.checks import Correct, exercise
from helpers.onnx_export import summary
from helpers.paths import ARTIFACTS, atomic_write

SOURCE = ARTIFACTS / "mnist_cnn.onnx"


def make_suspects(folder=ARTIFACTS / "nb03"):
    """Write suspect_a.onnx and suspect_b.onnx, the course's network with one fault each; return their paths."""
    import onnx

    paths = []
    for name, build in (("suspect_a.onnx", _with_a_detour), ("suspect_b.onnx", _with_a_mode)):
        model = build()
        onnx.checker.check_model(model, full_check=True)
        with atomic_write(folder / name) as temporary:
            onnx.save(model, temporary)
        paths.append(folder / name)
    return paths


def _with_a_detour():
    """The first pooling's output goes through half precision and back, as a forgotten experiment leaves it."""
    import onnx

    model = onnx.load(SOURCE)
    nodes = list(model.graph.node)
    place = next(index for index, node in enumerate(nodes) if node.op_type == "MaxPool")
    tensor = nodes[place].output[0]
    nodes[place + 1].input[0] = "_to_copy_1"
    nodes[place + 1 : place + 1] = [
        onnx.helper.make_node("Cast", [tensor], ["_to_copy"], DETOUR[0], to=onnx.TensorProto.FLOAT16),
        onnx.helper.make_node("Cast", ["_to_copy"], ["_to_copy_1"], DETOUR[1], to=onnx.TensorProto.FLOAT),
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


DETOUR = ("node__to_copy", "node__to_copy_1")


def _with_a_mode():
    """BatchNorm left standing in the graph, and the second one in training mode."""
    import tempfile
    from pathlib import Path

    import onnx
    import torch

    from helpers.model import load_weights

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter announces its retirement
        path = Path(folder, "plain.onnx")
        torch.onnx.export(
            load_weights(ARTIFACTS / "mnist_cnn.pt"), (torch.zeros(1, 1, 28, 28),), str(path), dynamo=False,
            do_constant_folding=False, input_names=["input"], output_names=["logits"],
            dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
        )  # fmt: skip
        model = onnx.load(path)
    for node in model.graph.node:  # "/features/features.5/BatchNormalization": shorter names are easier to compare
        node.name = node.name.removeprefix("/features/").removeprefix("/classifier/").replace("/", ".")
    faulty = next(node for node in model.graph.node if node.name == MODE)
    del faulty.attribute[[attribute.name for attribute in faulty.attribute].index("training_mode")]
    faulty.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    faulty.output.extend(["running_mean", "running_var"])
    return model


MODE, HEALTHY = "features.5.BatchNormalization", "features.1.BatchNormalization"


@cache
def _nodes():
    return summary(SOURCE).nodes


@exercise(
    "03.1",
    hint="find the row with the most parameters in the table, and divide its MACs by the total.",
)
def share_of_the_work_of_the_heaviest_layer(answer):
    answer = float(answer)
    nodes = _nodes()
    heaviest = max(nodes, key=lambda node: node.parameters)
    busiest = max(nodes, key=lambda node: node.macs)
    macs, parameters = sum(node.macs for node in nodes), sum(node.parameters for node in nodes)
    right = heaviest.macs / macs

    def near(value):
        return abs(answer - value) <= 0.01 * value

    if near(right):
        return Correct(
            f"{heaviest.name} holds {heaviest.parameters / parameters:.0%} of the parameters and does {right:.0%} of "
            "the work: each of its weights is used once for an image, a convolution's at every pixel."
        )
    if near(100 * right):
        return "That is the share in percent; the exercise asks for a number between 0 and 1."
    if near(heaviest.parameters / parameters):
        return "That is its share of the parameters. The question is about the work, the MACs."
    if near(busiest.macs / macs):
        return "That is the share of the layer with the most MACs; another one has the most parameters."
    return f"{heaviest.name} has the most parameters. Divide its MACs by {macs:,}."


_CASES = (  # weight, output, why this case is there
    ((16, 1, 3, 3), (1, 16, 28, 28)),
    ((32, 16, 3, 3), (1, 32, 14, 14)),
    ((8, 3, 7, 5), (1, 8, 10, 12)),
    ((24, 1, 3, 3), (1, 24, 7, 7)),
)


@exercise(
    "03.2",
    hint="how many numbers does the output hold, and how many products is each of them the sum of?",
)
def a_function_that_counts_macs(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = macs), found {type(answer).__name__}."
    found = [float(answer(weight, output)) for weight, output in _CASES]
    rules = {
        "right": lambda w, o: math.prod(o) * math.prod(w[1:]),
        "That counts every output channel twice: w[0] and output[1] are the same channels.":
            lambda w, o: math.prod(o) * math.prod(w),
        "That forgets the input channels: each output value sums over all of them.":
            lambda w, o: math.prod(o) * w[2] * w[3],
        "That is FLOPs, two for each MAC (one multiplication, one addition).":
            lambda w, o: 2 * math.prod(o) * math.prod(w[1:]),
        "That is done at every pixel of the output, not once.": lambda w, o: math.prod(w),
    }  # fmt: skip
    for words, rule in rules.items():
        if found == [rule(weight, output) for weight, output in _CASES]:
            if words == "right":
                return Correct(
                    "One MAC for each weight of a filter, at each value of the output; padding and strides are in the "
                    "output's size already."
                )
            return words
    weight, output = next(c for c, f in zip(_CASES, found, strict=True) if f != rules["right"](*c))
    return f"For weight {weight} and output {output} it returns something else than the number of products."


@cache
def _seen_by_one_value():
    """Side of the square of input pixels that can change one value behind the second pooling: tried, pixel by pixel."""
    import torch
    from torch import nn

    from helpers.model import MnistCNN

    features = MnistCNN().features.eval()
    for layer in features:
        if isinstance(layer, nn.Conv2d):  # positive weights: nothing cancels out, no ReLU hides a change
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
    with torch.inference_mode():
        one_pixel_each = torch.eye(28 * 28).reshape(-1, 1, 28, 28)
        changed = (features(one_pixel_each)[:, 0, 3, 3] != features(torch.zeros(1, 1, 28, 28))[0, 0, 3, 3]).nonzero()
    rows = changed[:, 0] // 28
    return int(rows.max() - rows.min() + 1)


@exercise(
    "03.3",
    hint="go backwards: one value behind a pooling comes from 2 × 2 before it. Those come from how many, before the "
    "convolution?",
)
def pixels_seen_by_one_value(answer):
    answer, right = float(answer), _seen_by_one_value()
    if answer == right:
        return Correct(
            f"Backwards: 1, pooling 2, convolution 4, pooling 8, convolution {right}. A good third of the image's side."
        )
    if answer == right * right:
        return "That is the number of pixels in the square; the exercise asks for its side."
    if answer == 4:
        return "28 / 7 = 4 is how far two neighbours are apart. The squares that they see overlap."
    if answer == 7:
        return "You added as if the second block worked on pixels; its inputs are already 2 pixels apart."
    if answer == 8:
        return "You stopped one operator too early, on the way back or forth: two convolutions and two poolings."
    return "Each convolution adds one on every side, each pooling doubles: count from the back."


@exercise(
    "03.4",
    hint="compare the suspect's operators, one by one, with those of mnist_cnn.onnx. Their names are in Netron's side "
    "bar.",
)
def the_detour(answer):
    if isinstance(answer, str):
        if answer == "Cast":
            return "That is their type, and the right one. The exercise asks for their names."
        answer = {answer}
    answer = set(answer)
    names = {node.name for node in _nodes()} | set(DETOUR)
    if answer == set(DETOUR):
        return Correct("To half precision and back: the shapes stay the same, the digits do not. MNN ignores both.")
    if answer < set(DETOUR) and answer:
        return "That is half of it. Deleted alone, the next operator would get the wrong type."
    if answer == {"Cast"}:
        return "That is their type, and the right one. The exercise asks for the names of the nodes."
    if unknown := sorted(map(str, answer - names)):
        return f"There is no node {', '.join(unknown)} in the graph. Click on a box: its name stands in the side bar."
    if answer > set(DETOUR):
        return "They are among them, but you would delete too much."
    if not answer:
        return "An empty set: something does not belong there. Which operators has mnist_cnn.onnx not got?"
    if answer & set(DETOUR):
        return "One of them is right, another belongs to the network: mnist_cnn.onnx has it too."
    return "Those belong to the network: mnist_cnn.onnx has them too."


@exercise(
    "03.5",
    hint="an operator that mixes the images of a batch must compute something over the batch. Which one does, and in "
    "which mode?",
)
def the_mode(answer):
    if isinstance(answer, (set, list, tuple)) and len(answer) == 1:
        (answer,) = answer
    name = str(answer).strip().strip("/").replace("/", ".")
    if name.startswith("features.features."):  # as the exporter wrote it
        name = name.removeprefix("features.")
    if name == MODE:
        return Correct(
            "It has training_mode = 1 and three outputs: it uses the batch's own mean and variance instead of those "
            "that training left. MNN's converter folds it away as if it were healthy, and nobody is told."
        )
    if name == HEALTHY:
        return "That BatchNormalization is in order: one output, training_mode = 0. Compare it with the other one."
    if name == "BatchNormalization":
        return "The right type, but there are two of them, and one is in order. Which one is not? Give its name."
    if name not in {node.name for node in summary(ARTIFACTS / "nb03" / "suspect_b.onnx").nodes}:
        return f"There is no node {name!r} in suspect B. Click on a box: its name stands in the side bar."
    return "That one treats every image for itself. Look for an operator that computes a mean over the batch."
