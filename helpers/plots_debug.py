"""What notebook 09 draws beside `helpers.plots`: where two engines part."""

import numpy as np
from matplotlib.figure import Figure

from .plots import BLUE, GREY, ORANGE, VERMILION

LOWEST, HIGHEST = -10, 150
"""Ends of the axis in dB; what lies beyond, also "exact" and "not comparable", is drawn at the end."""


def layer_snr(report, title="Where MNN and ONNX Runtime part"):
    """Signal-to-noise ratio of every layer of a `parity.LayerReport`, in dB, in the order of the graph.

    Line: all that went wrong up to a layer. Squares: the layer alone. Dashes: what a layer must reach. Crosses: the
    layers that do not; the first of them is named.
    """
    layers = report.layers
    places = np.arange(len(layers))
    so_far, alone = (
        np.clip([getattr(layer, figure) for layer in layers], LOWEST, HIGHEST) for figure in ("snr_db", "own_snr_db")
    )
    wrong = np.array([not layer.ok for layer in layers], bool)
    fig = Figure(figsize=(7.2, 3.8))
    axes = fig.add_subplot(title=title, ylabel="signal to noise (dB)", ylim=(LOWEST - 8, HIGHEST + 8))
    axes.plot(places, so_far, color=BLUE, marker="o", markersize=4, label="up to this layer")
    axes.plot(places[~wrong], alone[~wrong], "s", color=ORANGE, markersize=5, label="this layer alone")
    axes.step(places, [layer.limit_db for layer in layers], where="mid", color=GREY, linestyle="--", linewidth=1,
              label="required of a layer alone")  # fmt: skip
    if wrong.any():
        first = int(wrong.argmax())
        axes.axvline(first, color=VERMILION, linewidth=6, alpha=0.25)
        axes.plot(places[wrong], alone[wrong], "X", color=VERMILION, markersize=9, label="this layer alone: differs")
        leftward = first > len(layers) / 2
        axes.annotate(f"first: {layers[first].name}", (first, alone[first]), xytext=(-8 if leftward else 8, 16),
                      textcoords="offset points", ha="right" if leftward else "left")  # fmt: skip
    if len(layers) <= 20:
        axes.set_xticks(places, [layer.onnx_op for layer in layers], rotation=35, ha="right", fontsize=8)
    else:
        axes.set_xlabel("layer, in the order of the graph")
    fig.legend(loc="outside lower center", ncols=2, fontsize=8)
    return fig
