"""Things side by side, beside `helpers.plots`: differences and tolerances, sizes, accuracies, a table of ✓ and ✗."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from .plots import BLACK, BLUE, ORANGE, SKY, VERMILION, titled_axes

LEVELS = {"good": ("#B5E2D3", "✓"), "warn": ("#F9EDB0", "!"), "bad": ("#F3C3A5", "✗")}
"""For grid(): fill colour and sign of a cell; the sign says the same as the colour."""


def sizes_and_accuracy(rows, title="Size of the file and accuracy"):
    """rows: list of (name, bytes, accuracy in 0..1 or None). Bars in kB (1,000 bytes)."""
    fig, axes = titled_axes(title, "size of the file (kB, 1,000 bytes)", "variant", (6.8, 0.5 * len(rows) + 1.0))
    sizes = [size / 1000 for _, size, _ in rows]
    bars = axes.barh(range(len(rows)), sizes, color=SKY)
    texts = [
        f"{kb:,.0f} kB" + ("" if accuracy is None else f" · {accuracy:.2%} right")
        for kb, (_, _, accuracy) in zip(sizes, rows, strict=True)
    ]
    axes.bar_label(bars, texts, padding=4, fontsize=9)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_xlim(0, max(sizes) * 1.4)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return fig


def differences(errors, title="How far the logits are apart"):
    """errors: {name: array of differences, any shape}. Histograms of |difference| over a logarithmic axis.

    Exact zeros have no place on such an axis: their share is told in the legend.
    """
    errors = {name: np.abs(np.asarray(values, dtype=float)).ravel() for name, values in errors.items()}
    positive = np.concatenate([values[values > 0] for values in errors.values()] or [[]])
    fig, axes = titled_axes(title, "absolute difference (logits)", "share of the values")
    axes.set_xscale("log")
    low, high = (positive.min(), positive.max()) if len(positive) else (1e-9, 1.0)
    # Whole decades, at least one: a single value must still be visible as a bar.
    edges = np.geomspace(10.0 ** np.floor(np.log10(low)), 10.0 ** (np.floor(np.log10(high)) + 1), 61)
    for (name, values), line in zip(errors.items(), ("-", "--", "-.", ":") * len(errors), strict=False):
        some = values[values > 0]
        zeros = 1 - len(some) / max(1, len(values))
        label = name if zeros < 0.0005 else f"{name} ({zeros:.1%} exactly 0)"
        axes.hist(
            some, edges, weights=np.full(len(some), 1 / max(1, len(values))), label=label,
            histtype="step", linewidth=1.6, linestyle=line,
        )  # fmt: skip
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
    return fig


def tolerance(reference, candidate, *, rtol, atol, title="Tolerance"):
    """Every |difference| over the size of its reference value, and the line atol + rtol * |r| that it may reach.

    reference, candidate: float arrays of one shape. Values above the line are marked by a cross and counted in the
    legend. Exact zeros, which a logarithmic axis has no place for, are drawn at its lower edge.
    """
    reference, candidate = (np.asarray(values, dtype=float).ravel() for values in (reference, candidate))
    sizes, apart = np.abs(reference), np.abs(candidate - reference)
    outside = apart > atol + rtol * sizes
    positive = apart[apart > 0]
    floor = 10.0 ** np.floor(np.log10(positive.min() if len(positive) else 1e-9))
    x, y = np.maximum(sizes, 1e-6), np.maximum(apart, floor)
    title = f"{title}: rtol {rtol:.0e}, atol {atol:.0e}"
    fig, axes = titled_axes(title, "size of the reference value |r|", "difference |c - r|", (6.8, 4))
    axes.plot(x[~outside], y[~outside], ",", color=BLUE)
    axes.plot(x[outside], y[outside], "x", color=VERMILION, markersize=4)
    line = np.geomspace(x.min(), max(x.max(), 2 * x.min()), 200)
    axes.plot(line, np.maximum(atol + rtol * line, floor), color=BLACK)
    axes.set(xscale="log", yscale="log")
    axes.legend(
        handles=[
            Line2D([], [], color=BLACK, label="atol + rtol · |r|"),
            Line2D([], [], color=BLUE, marker="o", markersize=3, linestyle="",
                                    label=f"{int((~outside).sum()):,} inside"),
            Line2D([], [], color=VERMILION, marker="x", markersize=5, linestyle="",
                                    label=f"{int(outside.sum()):,} outside"),
        ],
        loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3,
    )  # fmt: skip
    return fig


def grid(rows, columns, cells, title="", row_label="", column_label=""):
    """A table whose cells are coloured and signed: ✓ good, ! warn, ✗ bad.

    rows, columns: names. cells: {(row, column): (text, level)}, level one of "good", "warn", "bad";
    a missing cell stays empty. Raises ValueError for another level or a cell outside the table.
    """
    for key, (_, level) in cells.items():
        if key[0] not in rows or key[1] not in columns:
            raise ValueError(f"grid() has no cell {key!r}; rows: {list(rows)}, columns: {list(columns)}.")
        if level not in LEVELS:
            raise ValueError(f"grid() knows the levels {list(LEVELS)}; found {level!r} in cell {key!r}.")
    tall = max([1, *(text.count("\n") + 1 for text, _ in cells.values())])
    wide = max([8, *(len(line) + 2 for text, _ in cells.values() for line in text.split("\n"))])
    size = (max(3.6, 1.6 + 0.085 * wide * len(columns)), 1.1 + (0.22 + 0.18 * tall) * len(rows))
    fig, axes = titled_axes(title, column_label, row_label, size)
    for (row, column), (text, level) in cells.items():
        x, y = list(columns).index(column), list(rows).index(row)
        color, sign = LEVELS[level]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=color, linewidth=0))
        axes.text(x, y, f"{sign} {text}", ha="center", va="center", fontsize=9)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    for edge in np.arange(0.5, len(columns) - 1):
        axes.axvline(edge, color="white", linewidth=3)
    for edge in np.arange(0.5, len(rows) - 1):
        axes.axhline(edge, color="white", linewidth=3)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(False)
    return fig


def process_bars(rows, title="A process of its own"):
    """rows: list of (name, start-up in seconds, peak memory in MB). Two charts, a bar for each process."""
    fig = Figure(figsize=(7.6, 0.5 * len(rows) + 1.2))
    left, right = fig.subplots(1, 2, sharey=True)
    for axes, column, color, what, unit, form in (
        (left, 1, SKY, "start-up", "seconds until the first answer", "{:.2f} s"),
        (right, 2, ORANGE, "memory", "peak memory (MB, 1,000,000 bytes)", "{:,.0f} MB"),
    ):
        values = [row[column] for row in rows]
        bars = axes.barh(range(len(rows)), values, 0.6, color=color)
        axes.bar_label(bars, [form.format(value) for value in values], padding=4, fontsize=9)
        axes.set(title=f"{title}: {what}", xlabel=unit, xlim=(0, max(values) * 1.35))
        axes.grid(False, axis="y")
    left.set(ylabel="process")
    left.set_yticks(range(len(rows)), [row[0] for row in rows])
    left.invert_yaxis()
    return fig


def shares(rows, title, xlabel="right answers", ylabel="input"):
    """rows: list of (name, share in 0..1). One bar each; the first, with which the others are compared, is darker."""
    fig, axes = titled_axes(title, xlabel, ylabel, (6.8, 0.36 * len(rows) + 1.0))
    values = [share for _, share in rows]
    bars = axes.barh(range(len(rows)), values, 0.7, color=[BLUE, *[SKY] * (len(rows) - 1)])
    axes.bar_label(bars, [f"{value:.0%}" for value in values], padding=4, fontsize=9)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_xlim(0, 1.1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return fig


def intervals(rows, title, xlabel="accuracy, with its 95 % interval", ylabel="counted"):
    """rows: list of (name, share, lowest, highest), all in 0..1. A dot with whiskers each, its figures beside it."""
    fig, axes = titled_axes(title, xlabel, ylabel, (7.2, 0.45 * len(rows) + 1.0))
    for place, (_, share, low, high) in enumerate(rows):
        axes.plot([low, high], [place, place], "|-", color=SKY, linewidth=3, markersize=12, markeredgewidth=2)
        axes.plot(share, place, "o", color=BLUE)
        axes.annotate(
            f"{low:.1%} to {high:.1%}", (high, place), (9, 0), textcoords="offset points", va="center", fontsize=9
        )
    low, high = min(row[2] for row in rows), max(row[3] for row in rows)
    axes.set(xlim=(low - 0.05 * (high - low), high + 0.35 * (high - low)), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_xticks([tick for tick in axes.get_xticks() if low - 1e-9 <= tick <= high + 1e-9])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="y")
    return fig
