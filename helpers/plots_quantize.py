"""What notebook 08 draws beside `helpers.plots`: ranges, calibration sets, the trade of size against accuracy."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .plots import BLUE, GREY, SKY, VERMILION


def value_range(values, limits, title, xlabel):
    """Histogram of `values` (any shape, counts on a logarithmic axis) with the range that integers can express.

    limits: (low, high); what lies outside is drawn in red and named in the legend with its share.
    """
    values, (low, high) = np.asarray(values, float).ravel(), limits
    edges = np.linspace(min(values.min(), low), max(values.max(), high), 81)
    fig = Figure(figsize=(6.8, 3.2))
    axes = fig.add_subplot(title=title, xlabel=xlabel, ylabel="number of values", yscale="log")
    outside = (values < low) | (values > high)
    axes.hist(values[~outside], edges, color=SKY, label="kept")
    axes.hist(values[outside], edges, color=VERMILION, label=f"clipped ({outside.mean():.0%})")
    for limit in limits:
        axes.axvline(limit, color="black", linestyle="--", linewidth=1)
    axes.legend()
    return fig


def accuracies(rows, title, goal=None):
    """rows: list of (name, accuracy in 0 to 1). Horizontal bars with their figures; goal: a dashed line, named FP32."""
    fig = Figure(figsize=(6.8, 0.36 * len(rows) + 1.1))
    axes = fig.add_subplot(title=title, xlabel="right answers, all test images")
    bars = axes.barh(range(len(rows)), [share for _, share in rows], color=SKY)
    axes.bar_label(bars, [f"{share:.1%}" for _, share in rows], padding=-38, fontsize=9)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_xlim(0, 1.12)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    if goal is not None:
        axes.axvline(goal, color="black", linestyle="--", linewidth=1)
        axes.annotate("FP32", (goal, len(rows) - 0.5), xytext=(4, 4), textcoords="offset points", fontsize=9)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return fig


def pareto(rows, title="Size, accuracy, time"):
    """rows: list of (name, bytes, accuracy in 0 to 1, time as a multiple of FP32's or None).

    Wrong answers over file size, both logarithmic; the colour is the time. A line joins the variants that no other one
    beats in both size and accuracy. Down and to the left is better.
    """
    fig = Figure(figsize=(8.4, 4.4))
    axes, key = fig.subplots(1, 2, width_ratios=(3, 1))
    axes.set(title=title, xscale="log", yscale="log", xlabel="size of the file (kB, 1,000 bytes)")
    axes.set_ylabel("wrong answers")
    sizes = np.array([size for _, size, _, _ in rows]) / 1000
    wrong = np.array([max(1 - share, 1e-4) for _, _, share, _ in rows])
    best = [i for i in range(len(rows)) if not any(
        (sizes[k] <= sizes[i]) & (wrong[k] <= wrong[i]) & ((sizes[k] < sizes[i]) | (wrong[k] < wrong[i]))
        for k in range(len(rows))
    )]  # fmt: skip
    best.sort(key=lambda i: sizes[i])
    axes.plot(sizes[best], wrong[best], color=GREY, linewidth=1, zorder=1)
    times = [np.nan if time is None else time for *_, time in rows]
    times = np.nan_to_num(times, nan=1.0)
    dots = axes.scatter(sizes, wrong, c=times, cmap="viridis", s=60, edgecolor="black", zorder=2)
    for row in range(len(rows)):
        # Numbers, since names would write over one another; around the point, since points lie on one another.
        angle = 2.4 * row
        shift = 13 * np.cos(angle) - 3, 13 * np.sin(angle) - 3
        axes.annotate(str(row + 1), (sizes[row], wrong[row]), xytext=shift, textcoords="offset points", fontsize=8)
    listed = "\n".join(f"{row + 1:2}  {name}" for row, (name, *_) in enumerate(rows))
    key.text(0, 0.5, listed, va="center", fontsize=8)
    key.axis("off")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.margins(0.12)
    fig.colorbar(dots, ax=axes, label="time, FP32 = 1", pad=0.02)
    return fig


def clip_and_round(values, limit, image, title):
    """The two errors of a symmetric 8-bit range ±limit: an image before and after, and both errors over the limit.

    values: array the errors are measured on; image: [28, 28] of the same kind of values.
    """
    fig = Figure(figsize=(7.4, 2.9))
    before, after, axes = fig.subplots(1, 3, width_ratios=(1, 1, 2.4))
    step = limit / 127
    for place, picture, name in (
        (before, image, "FP32"), (after, np.clip(np.rint(image / step), -127, 127) * step, f"range ±{limit:.2f}"),
    ):  # fmt: skip
        place.imshow(picture, vmin=image.min(), vmax=image.max())
        place.set_title(name)
        place.axis("off")
    limits = np.geomspace(0.1, 30, 60)
    clipped, rounded = np.array([errors(values, edge) for edge in limits]).T
    axes.loglog(limits, clipped + 1e-12, color=VERMILION, label="clipping")
    axes.loglog(limits, rounded, color=BLUE, label="rounding")
    axes.axvline(limit, color="black", linestyle="--", linewidth=1)
    axes.set(title=title, xlabel="range ± (input units)", ylabel="mean squared error", ylim=(1e-8, 1))
    axes.legend()
    return fig


def errors(values, limit):
    """(clipping, rounding): mean squared errors of 8-bit symmetric quantization of `values` to ±limit."""
    values, step = np.asarray(values, float), limit / 127
    kept = np.clip(values, -limit, limit)
    return float(np.mean((values - kept) ** 2)), float(np.mean((kept - np.rint(kept / step) * step) ** 2))
