"""The drawing of a graph: every operator, every tensor's shape, nothing on top of anything else."""

import numpy as np
import onnx
import pytest
from matplotlib.patches import FancyBboxPatch
from tiny_onnx import save_onnx

from helpers import plots
from helpers.convert import convert_onnx, graph_ops
from helpers.graph_picture import GAP, KINDS, Box, describe, draw, edges_between, layout, read_graph


@pytest.fixture(scope="module")
def branching(tmp_path_factory):
    """x → Split → (Relu, Sigmoid → Tanh) → Add → y: two outputs of one operator, two ways of unequal length."""
    return save_onnx(
        tmp_path_factory.mktemp("branching") / "branching.onnx",
        [
            ("Split", ["x"], ["a", "b"], {"axis": 1, "num_outputs": 2}),
            ("Relu", ["a"], ["short"]),
            ("Sigmoid", ["b"], ["s"]),
            ("Tanh", ["s"], ["t"]),
            ("Exp", ["t"], ["long"]),
            ("Add", ["short", "long"], ["y"]),
        ],
        {"x": ("float32", ["batch", 6, 4])},
        {"y": ("float32", ["batch", 3, 4])},
    )


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_onnx_graph_has_the_operators_and_doors_of_the_file_without_its_weights(tiny):
    graph = read_graph(tiny[0])
    assert [(box.op, box.inputs, box.outputs) for box in graph.boxes] == [
        ("input", (), ("x",)),
        ("Conv", ("x", "w", "b"), ("c",)),
        ("Relu", ("c",), ("y",)),
        ("output", ("y",), ()),
    ]
    assert [box.op for box in graph.operators] == ["Conv", "Relu"]
    assert graph.boxes[1].detail == "5×2×3×3"
    assert graph.shapes == {"x": "batch×2×8×8", "c": "batch×5×6×6", "y": "batch×5×6×6"}


def test_mnn_graph_shows_what_was_fused_and_the_shapes_that_the_engine_measures(tiny_mnn):
    graph = read_graph(tiny_mnn)
    assert [box.op for box in graph.operators if "Convolution" in box.op] == ["Convolution+relu"]
    assert "Const" not in {box.op for box in graph.boxes}
    convolution = next(box for box in graph.operators if box.op == "Convolution+relu")
    assert graph.shapes[convolution.outputs[0]] == "1×5×6×6"
    assert graph.boxes[0].detail == "NCHW" and graph.boxes[-1].name == "y"
    assert convolution.kind == "weights"


def test_operators_of_an_mnn_file_tell_which_tensors_they_read_and_write(tiny_mnn):
    ops = graph_ops(tiny_mnn)
    made = [name for op in ops for name in op.outputs]
    assert len(made) == len(set(made)) and "y" in made
    assert {name for op in ops for name in op.inputs} <= set(made)
    assert [op.layout for op in ops if op.type in ("Input", "ConvertTensor")][:2] == ["NCHW", "NCHW→NC4HW4"]


def test_drawing_has_a_box_for_each_operator_and_the_shape_of_each_tensor(branching):
    graph = read_graph(branching)
    figure = draw(graph)
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(graph.boxes) == 8
    for word in ("Split", "Relu", "Sigmoid", "Tanh", "Exp", "Add", "x", "y", "batch×6×4"):
        assert word in texts(figure)
    assert texts(figure).count("batch×3×4") == 6  # all but x have this shape; what Split makes is told once
    assert [text.get_text() for text in figure.legends[0].texts] == ["activation", "shape and order", "other"]
    assert len(plots.png(figure)) < 40_000


def test_boxes_are_coloured_by_the_kind_of_their_operator(branching):
    figure = draw(read_graph(branching))
    faces = {tuple(patch.get_facecolor()) for patch in figure.axes[0].patches}
    assert len(faces) == 4  # three kinds, and white for input and output
    assert len({color for color, _ in KINDS.values()}) == len(KINDS)


def test_description_counts_the_operators(branching):
    assert describe(read_graph(branching)) == (
        "Graph of branching.onnx: 6 operators from x to y: 1 Split, 1 Relu, 1 Sigmoid, 1 Tanh, 1 Exp, 1 Add."
    )


def random_graph(seed, count=30):
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(0, reader)), reader) for reader in range(1, count) for _ in range(rng.integers(1, 3))]
    return [float(width) for width in rng.uniform(0.8, 2, count)], list(dict.fromkeys(edges))


@pytest.mark.parametrize("seed", range(5))
def test_lines_lead_down_row_by_row_and_boxes_keep_their_distance(seed):
    widths, edges = random_graph(seed)
    places, routes = layout(widths, edges)
    assert len(places) == len(widths) and len(routes) == len(edges)
    for (source, reader), route in zip(edges, routes, strict=True):
        assert (route[0], route[-1]) == (places[source], places[reader])
        assert [row for _, row in route] == list(range(places[source][1], places[reader][1] + 1))
    for row in {row for _, row in places}:
        members = sorted((x, width) for (x, at), width in zip(places, widths, strict=True) if at == row)
        for (x, width), (next_x, next_width) in zip(members, members[1:], strict=False):
            assert next_x - x >= (width + next_width) / 2 + GAP - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_line_that_skips_rows_passes_no_box(seed):
    widths, edges = random_graph(seed)
    places, routes = layout(widths, edges)
    bends = [bend for route in routes for bend in route[1:-1]]
    assert bends
    for x, row in bends:
        for (box, at), width in zip(places, widths, strict=True):
            assert at != row or abs(box - x) >= width / 2 + GAP - 1e-9


def test_a_chain_is_drawn_as_a_straight_line():
    places, _ = layout([1.0, 2.0, 1.5, 1.0], [(0, 1), (1, 2), (2, 3)])
    assert [row for _, row in places] == [0, 1, 2, 3]
    assert np.ptp([x for x, _ in places]) < 1e-9


def test_what_reads_nothing_stands_just_above_its_reader():
    boxes = [Box("input", "x", (), ("x",)), Box("Relu", "r", ("x",), ("r",)), Box("Exp", "e", ("r",), ("e",)),
             Box("input", "late", (), ("late",)), Box("Add", "a", ("e", "late"), ("y",))]  # fmt: skip
    places, _ = layout([1.0] * 5, edges_between(boxes))
    assert [row for _, row in places] == [0, 1, 2, 2, 3]


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match="in a circle"):
        layout([1.0, 1.0], [(0, 1), (1, 0)])


def test_an_optional_input_that_is_left_out_is_no_line(tmp_path):
    path = save_onnx(
        tmp_path / "clip.onnx",
        [("Clip", ["x", "", "top"], ["y"])],
        {"x": ("float32", [2])},
        {"y": ("float32", [2])},
        {"top": np.float32(1)},
    )
    graph = read_graph(path)
    assert graph.boxes[1].inputs == ("x", "top") and len(edges_between(graph.boxes)) == 2
    assert graph.shapes["x"] == "[2]"


def test_shapes_stay_unknown_where_the_engine_cannot_run_the_model(tmp_path):
    hardmax = save_onnx(
        tmp_path / "h.onnx",
        [("Relu", ["x"], ["r"]), ("Hardmax", ["r"], ["y"])],
        {"x": ("float32", [1, 4])},
        {"y": ("float32", [1, 4])},
    )
    path = convert_onnx(hardmax, tmp_path / "h.mnn", options=["--allowCustomOp"]).path  # converts, and can't run
    graph = read_graph(path)
    assert set(graph.shapes) <= {"x"} and [box.name for box in graph.boxes if box.op == "output"] == ["y"]
    assert draw(graph).axes


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.onnx does not exist"):
        read_graph(tmp_path / "none.onnx")
    refusals = {"a.pt": "Only .onnx and .mnn", "a.onnx": "not an ONNX file", "a.mnn": "not an MNN model"}
    for name, message in refusals.items():
        (tmp_path / name).write_bytes(b"\x07nothing of the kind")
        with pytest.raises(ValueError, match=message):
            read_graph(tmp_path / name)


def test_external_weights_are_not_needed_for_the_picture(tiny, tmp_path):
    split = tmp_path / "split.onnx"
    onnx.save_model(onnx.load(tiny[0]), split, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert [box.op for box in read_graph(split).operators] == ["Conv", "Relu"]
