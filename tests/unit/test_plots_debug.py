"""Notebook 09's drawing of a layer report shows its figures."""

import numpy as np

from helpers import plots
from helpers.parity import LayerParity, LayerReport
from helpers.plots_debug import HIGHEST, LOWEST, layer_snr


def layer(name, so_far, alone, limit=90.0):
    return LayerParity(name, (name,), "Conv+Relu", "Convolution+relu", name, (1, 2), 0.1, 0.9, so_far, alone, limit,
                       alone >= limit)  # fmt: skip


REPORT = LayerReport((layer("one", 140.0, 140.0), layer("two", 26.0, 26.0), layer("three", 20.0, np.inf),
                      layer("four", 5.0, -np.inf)))  # fmt: skip


def lines(report):
    return {line.get_label(): line for line in layer_snr(report).axes[0].lines}


def test_the_figures_are_drawn_and_what_is_beyond_the_axis_at_its_end():
    drawn = lines(REPORT)
    assert drawn["up to this layer"].get_ydata().tolist() == [140, 26, 20, 5]
    assert drawn["this layer alone"].get_xdata().tolist() == [0, 2]
    assert drawn["this layer alone"].get_ydata().tolist() == [140, HIGHEST]
    assert drawn["this layer alone: differs"].get_ydata().tolist() == [26, LOWEST]
    assert set(drawn["required of a layer alone"].get_ydata()) == {90}


def test_the_first_layer_that_differs_is_named():
    axes = layer_snr(REPORT).axes[0]
    assert [text.get_text() for text in axes.texts] == ["first: two"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["Conv+Relu"] * 4
    assert axes.get_ylabel().endswith("(dB)") and axes.get_title(loc="left")


def test_a_healthy_report_marks_nothing():
    report = LayerReport(REPORT.layers[:1])
    assert "this layer alone: differs" not in lines(report) and not layer_snr(report).axes[0].texts


def test_many_layers_are_numbered_and_the_picture_stays_small():
    fig = layer_snr(LayerReport(REPORT.layers * 20))
    assert "order of the graph" in fig.axes[0].get_xlabel()
    assert len(plots.png(fig)) < 40_000
