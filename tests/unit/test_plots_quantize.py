"""Notebook 08's drawings show the values they are given."""

import numpy as np
import pytest

from helpers import plots_quantize


def test_the_range_names_the_share_that_is_clipped():
    axes = plots_quantize.value_range(np.array([0.0, 0.1, 0.2, 5.0]), (-1, 1), "t", "x").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["kept", "clipped (25%)"]
    assert {line.get_xdata()[0] for line in axes.lines} == {-1, 1}


def test_accuracy_bars_are_as_long_as_the_accuracies():
    axes = plots_quantize.accuracies([("a", 0.5), ("b", 0.9)], "t", goal=0.99).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.9]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_the_pareto_line_joins_what_no_other_variant_beats():
    rows = [("big", 9000, 0.99, 1.0), ("beaten", 9500, 0.98, None), ("small", 1000, 0.9, 2.0)]
    axes, key, *_ = plots_quantize.pareto(rows).axes
    assert list(axes.lines[0].get_xdata()) == [1.0, 9.0]
    assert key.texts[0].get_text().splitlines() == [" 1  big", " 2  beaten", " 3  small"]


def test_the_two_errors_add_up_by_hand():
    clipping, rounding = plots_quantize.errors([0.0, 0.3, 3.0], 1.0)
    assert clipping == pytest.approx(4 / 3)
    assert rounding == pytest.approx((0.3 - 38 / 127) ** 2 / 3)


def test_the_picture_of_a_limit_shows_before_after_and_curves():
    image = np.linspace(0, 3, 784).reshape(28, 28)
    fig = plots_quantize.clip_and_round(image, 1.0, image, "t")
    assert len(fig.axes) == 3 and fig.axes[1].images[0].get_array().max() == pytest.approx(1.0)
