"""The figures: each says what it shows, in the notebook's format, and refuses what it can't draw."""

import base64
import io

import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from helpers import plots, plots_compare, plots_graph

RNG = np.random.default_rng(0)
MATRIX = np.diag(RNG.integers(900, 1100, 10)) + RNG.integers(0, 4, (10, 10))
HISTORY = [{"step": i, "loss": 2 * 0.99**i + 0.02} for i in range(0, 940, 2)] + [
    {"epoch": 1, "accuracy": 0.985},
    {"epoch": 2, "accuracy": 0.9912},
]
FIGURES = {
    "training_curves": lambda: plots.training_curves(HISTORY),
    "confusion_matrix": lambda: plots.confusion_matrix(MATRIX),
    "probabilities": lambda: plots.probabilities(np.full(10, 0.1)),
    "guess": lambda: plots.guess(np.eye(28), np.full(10, 0.1)),
    "op_bars": lambda: plots_graph.op_bars({"Conv": 2, "Relu": 3, "Gemm": 2}, {"Convolution": 4, "Pooling": 2}),
    "fusion": lambda: plots_graph.fusion([("Conv", "Convolution"), ("Relu", None), ("MaxPool", "Pooling")]),
    "flow": lambda: plots_graph.flow(
        [("fetch", "net", "the source\ngit clone …"), ("build", "cpu", "all of it")], {"net": "network", "cpu": "work"},
        "A plan", marked=["build"],
    ),
    "sizes_and_accuracy": lambda: plots_compare.sizes_and_accuracy([("fp32", 890_000, 0.993), ("4 bit", 9, None)]),
    "differences": lambda: plots_compare.differences({"fp16": RNG.normal(size=(9_000, 10)), "same": np.zeros(9)}),
    "tolerance": lambda: plots_compare.tolerance(
        MATRIX, MATRIX + 1e-5 * RNG.normal(size=(10, 10)), rtol=1e-7, atol=1e-6
    ),
    "grid": lambda: plots_compare.grid(
        ["default"], ["13", "18"], {("default", "13"): ("agrees", "good")}, "Exporters", "exporter", "opset"
    ),
    "process_bars": lambda: plots_compare.process_bars([("MNN", 0.2, 80.0), ("PyTorch", 2.5, 400.0)]),
    "shares": lambda: plots_compare.shares([("as in training", 0.99), ("inverted", 0.31)], "Mistakes"),
    "intervals": lambda: plots_compare.intervals([("99 of 100", 0.99, 0.9455, 0.9997)], "What a count says"),
}  # fmt: skip


@pytest.fixture
def displayed(monkeypatch):
    """What IPython was asked to display: list of (bundle, options)."""
    calls = []
    monkeypatch.setattr(plots, "display", lambda bundle, **options: calls.append((bundle, options)))
    return calls


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def picture(data):
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_titles_and_axis_labels_and_is_small(name):
    figure = FIGURES[name]()
    assert any(axes.get_title(loc="left") for axes in figure.axes)
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes is not figure.axes[0]  # the second may share its axis
    data = plots.png(figure)
    assert picture(data).width >= 300
    assert len(data) <= 40_000


def test_show_emits_the_picture_with_its_alternative_text_and_closes_the_figure(displayed):
    figure = pyplot.figure()
    plots.show(figure, alt="A falling loss.")
    ((bundle, options),) = displayed
    assert options["raw"] and options["metadata"] == {"image/png": {"alt": "A falling loss."}}
    assert bundle["text/plain"] == "A falling loss."
    assert picture(base64.b64decode(bundle["image/png"])).format == "PNG"
    assert not pyplot.fignum_exists(figure.number)


@pytest.mark.parametrize("alt", ["", "  ", None])
def test_show_refuses_a_figure_without_alternative_text(displayed, alt):
    with pytest.raises(ValueError, match="needs alternative text"):
        plots.show(plots.probabilities(np.full(10, 0.1)), alt=alt)
    assert not displayed


def test_a_thin_line_keeps_its_colour_in_the_small_palette():
    image = np.linspace(0, 1, 28 * 28).reshape(28, 28)
    figure = plots.digits([image] * 30, wrong=[True] + [False] * 29)
    pixels = np.asarray(picture(plots.png(figure)).convert("RGB"))
    wanted = np.array([0xD5, 0x5E, 0x00])
    assert (np.abs(pixels.astype(int) - wanted).sum(axis=2) < 30).sum() > 50


def test_digits_marks_the_wrong_ones_by_a_sign_and_not_by_colour_alone():
    figure = plots.digits(np.zeros((3, 28, 28)), titles=[7, 2, 1], wrong=[False, True, False], columns=2)
    assert [axes.get_title() for axes in figure.axes] == ["7", "2 ✗", "1", ""]
    assert [len(axes.patches) for axes in figure.axes] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": np.zeros((28, 28))}, r"expects images \[N, 28, 28\], N > 0; found \[28, 28\]"),
        ({"images": np.zeros((0, 28, 28))}, r"found \[0, 28, 28\]"),
        ({"images": np.zeros((2, 28, 28)), "titles": ["a"]}, "as many titles as images, 2; found 1"),
    ],
)
def test_digits_says_what_it_expects(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.digits(**arguments)


def test_training_curves_draw_every_loss_and_every_accuracy():
    figure = plots.training_curves(HISTORY)
    loss, accuracy = figure.axes
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [r["loss"] for r in HISTORY if "loss" in r])
    np.testing.assert_allclose(accuracy.lines[0].get_xydata(), [[1, 0.985], [2, 0.9912]])
    smooth = loss.lines[1]  # the mean of the last 11 losses stands at the last of their steps
    np.testing.assert_allclose(smooth.get_ydata()[0], np.mean([r["loss"] for r in HISTORY[:11]]))
    assert smooth.get_xdata()[0] == HISTORY[10]["step"]


def test_training_curves_take_an_empty_history():
    assert not any(axes.lines for axes in plots.training_curves([]).axes)


def test_the_confusion_matrix_colours_only_mistakes_and_writes_every_count():
    figure = plots.confusion_matrix(MATRIX)
    coloured = figure.axes[0].images[0].get_array()
    assert not np.diag(coloured).any()
    assert coloured.sum() == MATRIX.sum() - np.trace(MATRIX)
    assert sorted(texts(figure)) == sorted(str(n) for n in MATRIX.ravel() if n)


def test_op_bars_show_a_vanished_operation_as_zero():
    figure = plots_graph.op_bars({"Conv": 2, "Relu": 1}, {"Conv": 2})
    before, after = figure.axes[0].containers
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert dict(zip(names, [bar.get_width() for bar in before], strict=True)) == {"Conv": 2, "Relu": 1}
    assert dict(zip(names, [bar.get_width() for bar in after], strict=True)) == {"Conv": 2, "Relu": 0}


def test_fusion_draws_one_tall_box_for_operators_that_became_one():
    (axes,) = plots_graph.fusion([("Conv", "Convolution+relu"), ("Relu", None), ("MaxPool", "Pooling")]).axes
    left = [patch for patch in axes.patches if patch.get_x() == 0]
    right = [patch for patch in axes.patches if patch.get_x() > 1]
    assert len(left) == 3
    assert [round(patch.get_height() / left[0].get_height(), 1) for patch in right] == [2.2, 1.0]
    assert [text.get_text() for text in axes.texts].count("Convolution+relu") == 1


def test_sizes_are_in_thousands_of_bytes_with_the_accuracy_beside_them():
    figure = plots_compare.sizes_and_accuracy([("fp32", 890_112, 0.993), ("raw", 1_000, None)])
    assert texts(figure) == ["890 kB · 99.30% right", "1 kB"]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [890.112, 1.0]


def test_differences_count_exact_zeros_in_the_legend_and_lose_no_value():
    values = np.array([0.0, 0.0, 1e-6, -1e-6, 1e-3])
    figure = plots_compare.differences({"fp16": values, "same": np.zeros(4)})
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["fp16 (40.0% exactly 0)", "same (100.0% exactly 0)"]
    heights, _ = np.histogram([1e-6, 1e-6, 1e-3], bins=10)
    top = figure.axes[0].patches[0].get_xy()[:, 1].max()
    assert top == pytest.approx(heights.max() / len(values))


def test_tolerance_counts_what_numpy_calls_not_close():
    reference = np.array([0.0, 1.0, 1.0, 100.0, 100.0])
    candidate = reference + [1e-5, 0.0009, -0.0012, 0.09, 0.11]
    figure = plots_compare.tolerance(reference, candidate, rtol=1e-3, atol=1e-4)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    outside = int((~np.isclose(candidate, reference, rtol=1e-3, atol=1e-4)).sum())
    assert outside == 2
    assert labels[1:] == ["3 inside", "2 outside"]


def test_tolerance_draws_two_equal_arrays():
    figure = plots_compare.tolerance(np.zeros(3), np.zeros(3), rtol=0, atol=0)
    assert figure.axes[0].get_legend().get_texts()[2].get_text() == "0 outside"
    assert plots.png(figure)


def test_a_grid_says_its_levels_by_signs_and_leaves_missing_cells_empty():
    cells = {("a", "x"): ("fine", "good"), ("a", "y"): ("hm", "warn"), ("b", "x"): ("no", "bad")}
    assert texts(plots_compare.grid(["a", "b"], ["x", "y"], cells)) == ["✓ fine", "! hm", "✗ no"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [({("a", "z"): ("", "good")}, r"no cell \('a', 'z'\)"), ({("a", "x"): ("", "great")}, "found 'great'")],
)
def test_a_grid_refuses_unknown_cells_and_levels(cells, message):
    with pytest.raises(ValueError, match=message):
        plots_compare.grid(["a"], ["x"], cells)


def test_the_bars_of_shares_have_the_lengths_given_and_tell_them():
    axes = plots_compare.shares([("right", 0.99), ("wrong", 0.31)], "Mistakes").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.99, 0.31]
    assert [text.get_text() for text in axes.texts] == ["99%", "31%"]


def test_an_interval_reaches_from_its_lower_to_its_upper_end():
    axes = plots_compare.intervals([("100", 0.99, 0.9455, 0.9997), ("10,000", 0.993, 0.991, 0.995)], "Counts").axes[0]
    whiskers, dots = axes.lines[0::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in whiskers] == [[0.9455, 0.9997], [0.991, 0.995]]
    assert [line.get_xdata()[0] for line in dots] == [0.99, 0.993]
    assert [text.get_text() for text in axes.texts] == ["94.5% to 100.0%", "99.1% to 99.5%"]


class Handle:
    def __init__(self):
        self.updates = []

    def update(self, bundle, **options):
        self.updates.append(bundle)


def test_a_live_plot_updates_one_output_in_a_kernel_and_not_more_often_than_asked(monkeypatch):
    handle, first = Handle(), []
    monkeypatch.setattr(plots, "_in_kernel", lambda: True)
    monkeypatch.setattr(plots, "display", lambda bundle, **options: (first.append(options), handle)[1])
    with plots.LivePlot(alt="Loss falls.", seconds=3600) as live:
        for record in HISTORY:
            live.add(record)
    assert live.history == HISTORY
    assert len(first) == 1 and first[0]["display_id"]
    assert [bundle["text/plain"] for bundle in handle.updates] == ["Loss falls."]  # only the end
    with plots.LivePlot(alt="Loss falls.", seconds=0) as live:
        for record in HISTORY[:3]:
            live.add(record)
    assert len(handle.updates) == 1 + 3 + 1


def test_a_live_plot_shows_only_the_end_outside_a_kernel_also_after_an_interruption(displayed):
    with pytest.raises(KeyboardInterrupt), plots.LivePlot(alt="Loss falls.", seconds=0) as live:
        live.add(HISTORY[0])
        raise KeyboardInterrupt
    assert len(displayed) == 1


def test_the_palette_is_the_published_one():
    # Okabe & Ito, "Color Universal Design" (2008): RGB values of the eight colours.
    published = [(0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178),
                 (213, 94, 0), (204, 121, 167)]  # fmt: skip
    assert [tuple(bytes.fromhex(color[1:])) for color in plots.PALETTE] == published


def test_tiles_lie_side_by_side_with_a_gap_of_one_pixel():
    sheet = plots_graph.tiles(np.arange(12.0).reshape(3, 2, 2), columns=2)
    gap = np.nan
    np.testing.assert_array_equal(
        sheet,
        [[0, 1, gap, 4, 5], [2, 3, gap, 6, 7], [gap] * 5, [8, 9, gap, gap, gap], [10, 11, gap, gap, gap]],
    )


@pytest.mark.parametrize(("count", "shape"), [(16, (3, 15)), (128, (15, 31)), (10, (3, 9)), (1, (1, 1))])
def test_tiles_of_single_values_fill_a_grid_about_twice_as_wide_as_high(count, shape):
    assert plots_graph.tiles(np.ones(count)).shape == shape


@pytest.mark.parametrize("maps", [np.zeros((0, 3, 3)), np.zeros((2, 2)), np.float32(1)])
def test_tiles_say_what_they_expect(maps):
    with pytest.raises(ValueError, match=r"expects \[C, h, w\] or \[C\] with C > 0; found \["):
        plots_graph.tiles(maps)


def test_channels_share_one_scale_which_is_symmetric_on_request():
    maps = np.stack([np.full((3, 3), -1.0), np.full((3, 3), 4.0)])
    one, both = plots_graph.channels(maps, "Kernels"), plots_graph.channels(maps, "Kernels", "weight", symmetric=True)
    assert one.axes[0].images[0].get_clim() == (-1, 4)
    assert both.axes[0].images[0].get_clim() == (-4, 4)
    assert both.axes[1].get_ylabel() == "weight" and both.axes[0].get_title(loc="left") == "Kernels"
    assert len(plots.png(plots_graph.channels(RNG.normal(size=(32, 14, 14)), "Maps"))) <= 40_000


def test_flow_marks_steps_by_more_than_a_colour_and_puts_the_second_line_below():
    figure = FIGURES["flow"]()
    assert {"fetch", "build *", "the source", "git clone …", "all of it"} <= set(texts(figure))
    assert [patch.get_linewidth() > 1 for patch in figure.axes[0].patches if patch.get_width() == 1] == [False, True]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["network", "work"]


def test_flow_refuses_a_kind_without_a_meaning():
    with pytest.raises(ValueError, match=r"knows the kinds \['net'\]; found 'cpu' in step 'build'"):
        plots_graph.flow([("build", "cpu", "")], {"net": "network"}, "A plan")
