"""What notebook 07 draws beside `helpers.plots`: distributions of times, races, layers, scaling, the roofline."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from .bench import with_unit
from .plots import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION

COLORS = (BLUE, ORANGE, GREEN, VERMILION, SKY, BLACK)
MARKS = ("o", "s", "^", "D", "v", "P")


def distribution(timings, title="How long a call takes"):
    """timings: list of `Timing`. A histogram each, over one logarithmic axis, with its median and its p99 marked."""
    fig = Figure(figsize=(7.2, 1.1 * len(timings) + 1.5))
    rows = fig.subplots(len(timings), 1, sharex=True, squeeze=False)[:, 0]
    everything = np.concatenate([timing.seconds for timing in timings]) * 1e6
    low, high = everything.min() * 0.95, max(np.percentile(everything, 99.5) * 1.3, everything.min() * 2)
    edges = np.geomspace(low, high, 90)
    for axes, timing, color in zip(rows, timings, COLORS * len(timings), strict=False):
        values = (timing.seconds * 1e6).clip(low, high)  # what lies beyond stands in the last bar
        axes.hist(values, edges, weights=np.full(len(values), 100 / len(values)), color=color, alpha=0.75)
        for share, line in ((50, "-"), (99, ":")):
            place = timing.percentile(share) * 1e6
            axes.axvline(min(place, high), color=BLACK, linestyle=line, linewidth=1.5,
                         label=f"p{share} {with_unit(place / 1e6)}")  # fmt: skip
        axes.set_title(f"{timing.name} ({timing.n:,} samples)", fontsize=10)
        axes.set(xscale="log", ylabel="% of samples")
        axes.legend(loc="upper right", fontsize=9)
    _plain_ticks(rows[-1].xaxis, low, high)
    rows[-1].set_xlabel("µs per call, logarithmic; the last bar holds all that lies beyond")
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def race(race, title="A race"):
    """race: a `Race`. For each function a dot, times the reference, with its interval; its median time beside it."""
    fig = Figure(figsize=(7.4, 0.45 * len(race.names) + 1.3))
    axes = fig.add_subplot(title=title, xlabel=f"time, as a multiple of that of “{race.names[0]}” (logarithmic)")
    ratios = [race.ratio(name) for name in race.names]
    for place, (name, ratio) in enumerate(zip(race.names, ratios, strict=True)):
        even = ratio.verdict == "no difference seen"
        color = GREY if even else BLUE
        axes.plot([ratio.low, ratio.high], [place, place], "|-", color=color, linewidth=2, markersize=10)
        axes.plot(ratio.value, place, "o", color=color)
        text = with_unit(race.timing(name).p50) + (" · no difference seen" if even and place else "")
        axes.annotate(
            text, (ratio.high, place), (9, 0), textcoords="offset points", va="center", fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.axvline(1, color=BLACK, linewidth=1)
    low, high = min(ratio.low for ratio in ratios), max(ratio.high for ratio in ratios)
    low, high = min(low, 0.8) / 1.05, max(high, 1.25) * (max(high, 1.25) / min(low, 0.8)) ** 0.45
    axes.set(xscale="log", xlim=(low, high), ylim=(len(race.names) - 0.5, -0.5))
    _plain_ticks(axes.xaxis, low, high)
    axes.set_yticks(range(len(race.names)), race.names)
    axes.grid(False, axis="y")
    return fig


def rounds(race, title="Round by round"):
    """race: a `Race`. The time of every function in every round."""
    fig = Figure(figsize=(7.2, 3))
    axes = fig.add_subplot(title=title, xlabel="round", ylabel="µs per call")
    for place, (name, column, mark) in enumerate(zip(race.names, race.seconds.T, MARKS, strict=False)):
        # Hollow and larger from one to the next, so that none hides another.
        axes.plot(1e6 * column, mark, markersize=3 + 3 * place, fillstyle="none" if place else "full", label=name)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_ylim(0)
    return fig


def layers(rows, title="Time of each layer"):
    """rows: {layer: {engine: seconds}}. A bar for each engine and layer, its time beside it."""
    engines = list(next(iter(rows.values())))
    fig = Figure(figsize=(7.2, 0.32 * len(engines) * len(rows) + 1.2))
    axes = fig.add_subplot(title=title, xlabel="µs")
    height = 0.8 / len(engines)
    for place, (engine, color) in enumerate(zip(engines, COLORS, strict=False)):
        values = [1e6 * row[engine] for row in rows.values()]
        at = np.arange(len(rows)) + (place - (len(engines) - 1) / 2) * height
        bars = axes.barh(at, values, height * 0.92, color=color, label=engine)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.legend(loc="lower right")
    return fig


def scaling(x, lines, title, xlabel, ylabel, ideal=None):
    """x: numbers, drawn as powers of two. lines: {name: values}. ideal: values of a thin line for comparison."""
    fig = Figure(figsize=(6.8, 3.4))
    axes = fig.add_subplot(title=title, xlabel=xlabel, ylabel=ylabel, xscale="log")
    for (name, values), color, mark in zip(lines.items(), COLORS, MARKS, strict=False):
        axes.plot(x, values, f"{mark}-", color=color, label=name)
    if ideal is not None:
        axes.plot(x, ideal, ":", color=GREY, label="ideal")
    axes.xaxis.set_major_locator(FixedLocator(x))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def start_up(rows, title="From the start of a process to its first answer"):
    """rows: {engine: StartUp}. One bar each, made of its phases."""
    fig = Figure(figsize=(7.2, 0.5 * len(rows) + 1.6))
    axes = fig.add_subplot(title=title, xlabel="seconds")
    left = np.zeros(len(rows))
    phases = (("python", "Python, numpy", GREY), ("imports", "import", SKY), ("load", "load", ORANGE),
              ("first", "first answer", VERMILION))  # fmt: skip
    for phase, label, color in phases:
        values = np.array([getattr(row, phase) for row in rows.values()])
        bars = axes.barh(range(len(rows)), values, 0.6, left, color=color, label=label)
        left += values
    axes.bar_label(bars, [f"{total:.2f} s" for total in left], padding=4, fontsize=9)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xlim(0, left.max() * 1.15)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.35), ncols=4)
    return fig


def roofline(limits, points, title="How far from the limit"):
    """limits: `Limits` of one core. points: list of (engine, Work, seconds). Both axes are logarithmic."""
    fig = Figure(figsize=(7.6, 4.6))
    axes = fig.add_subplot(title=title, xlabel="operations for each byte moved", ylabel="GFLOP/s", xscale="log",
                           yscale="log")  # fmt: skip
    intensities = [work.intensity for _, work, _ in points]
    x = np.geomspace(min(intensities) / 2, max(intensities) * 2, 200)
    for where, line in (("cache", "-"), ("memory", "--")):
        roof = [limits.attainable(intensity, where) / 1e9 for intensity in x]
        axes.plot(x, roof, line, color=BLACK, label=f"limit, data in {where}")
    engines = list(dict.fromkeys(engine for engine, _, _ in points))
    for engine, color, mark in zip(engines, COLORS, MARKS, strict=False):
        own = [(work.intensity, work.flops / seconds / 1e9) for name, work, seconds in points if name == engine]
        axes.plot(*zip(*own, strict=True), mark, color=color, markersize=8, linestyle="", label=engine)
    bottom = min(work.flops / seconds / 1e9 for _, work, seconds in points) / 4
    named = sorted({work.name: work.intensity for _, work, _ in points}.items(), key=lambda item: item[1])
    for place, (name, intensity) in enumerate(named):
        # Neighbours stand at different heights, since two of one intensity would write over each other.
        axes.annotate(name, (intensity, bottom), (0, 3 + 42 * (place % 2)), textcoords="offset points", rotation=90,
                      ha="center", va="bottom", fontsize=8, color=GREY)  # fmt: skip
        axes.axvline(intensity, color="#E4E4E4", linewidth=1, zorder=0)
    axes.set_ylim(bottom)
    for axis, values in ((axes.xaxis, x), (axes.yaxis, (bottom, limits.flops / 1e9 * 1.5))):
        _plain_ticks(axis, min(values), max(values))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def _plain_ticks(axis, low, high):
    """Ticks at 1, 2, 5 times powers of ten, written as plain numbers, on a logarithmic axis."""
    ticks = [step * 10.0**power for power in range(-9, 10) for step in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    ticks = ticks if len(ticks) < 10 else [tick for tick in ticks if f"{tick:e}".startswith("1")]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
