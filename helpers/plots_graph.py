"""What a network looks like, beside `helpers.plots`: its operators before and after, steps in a row, what is inside."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from .plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW, titled_axes


def op_bars(before, after, title="Operations before and after", names=("before: ONNX", "after: MNN")):
    """before, after: {operation: count}. Pairs of bars, a vanished or new operation with an explicit 0."""
    ops = sorted({*before, *after}, key=lambda op: (-before.get(op, 0), -after.get(op, 0), op))
    fig, axes = titled_axes(title, "number of operations", "operation", (6.4, 0.42 * len(ops) + 1.1))
    places = np.arange(len(ops))
    for counts, name, shift, color, hatch in (
        (before, names[0], -0.2, SKY, ""), (after, names[1], 0.2, BLUE, "///"),
    ):  # fmt: skip
        values = [counts.get(op, 0) for op in ops]
        look = {"color": color, "hatch": hatch, "edgecolor": "white"}
        bars = axes.barh(places + shift, values, 0.38, label=name, **look)
        axes.bar_label(bars, padding=3, fontsize=9)
    axes.set_yticks(places, ops)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.legend(loc="lower right")
    return fig


def fusion(steps, title="What became of each operator", names=("ONNX", "MNN")):
    """steps: list of (operator before, operator after), in the order of the graph; None: it went into the one above.

    Two columns of boxes; a box at the right is as tall as the operators that it replaces.
    """
    fig, axes = titled_axes(title, f"{names[0]} at the left, {names[1]} at the right", "position in the graph",
                      (6.4, 0.36 * len(steps) + 1.0))  # fmt: skip
    starts = [row for row, (_, after) in enumerate(steps) if after is not None or row == 0]
    for row, (before, _) in enumerate(steps):
        _box(axes, 0.0, row, 1, before, SKY if row in starts else YELLOW)
    for start, end in zip(starts, [*starts[1:], len(steps)], strict=True):
        _box(axes, 1.4, start, end - start, steps[start][1] or "?", SKY)
        for row in range(start, end):
            axes.plot([1.0, 1.4], [row + 0.5, (start + end) / 2], color=GREY, linewidth=1)
    _number_rows(axes, len(steps), 2.45)
    return fig


def _number_rows(axes, count, width):
    """A list drawn from the top: its rows numbered from 1, no frame, no grid."""
    axes.set(xlim=(-0.05, width), ylim=(count, 0), xticks=[])
    axes.set_yticks(np.arange(count) + 0.5, range(1, count + 1))
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _box(axes, left, top, height, text, color):
    box = (left, top + 0.08), 1.0, height - 0.16
    axes.add_patch(Rectangle(*box, facecolor=color, edgecolor=BLACK, linewidth=0.8))
    axes.text(left + 0.5, top + height / 2, text, ha="center", va="center", fontsize=9)


def flow(steps, kinds, title, marked=()):
    """A chain of boxes from top to bottom, what each one is about at its right.

    steps: list of (name, kind, text); a second line of the text, after a newline, is set small. kinds: {kind: meaning},
    the legend, at most six. marked: names of steps that get a thick frame and a star. Raises ValueError for a kind
    without meaning.
    """
    fig, axes = titled_axes(title, "what is done", "step", (9.2, 0.62 * len(steps) + 1.0))
    colors = dict(zip(kinds, (SKY, YELLOW, ORANGE, PURPLE, GREEN, "#DDDDDD"), strict=False))
    for row, (name, kind, text) in enumerate(steps):
        if kind not in kinds:
            raise ValueError(f"flow() knows the kinds {list(kinds)}; found {kind!r} in step {name!r}.")
        thick = 2.4 if name in marked else 0.8
        box = Rectangle((0, row + 0.16), 1, 0.68, facecolor=colors[kind], edgecolor=BLACK, linewidth=thick)
        axes.add_patch(box)
        axes.text(0.5, row + 0.5, f"{name} *" if name in marked else name, ha="center", va="center", fontsize=10)
        head, _, small = text.partition("\n")
        axes.text(1.1, row + (0.34 if small else 0.5), head, va="center", fontsize=9)
        axes.text(1.1, row + 0.68, small, va="center", fontsize=7.5, color=GREY, family="monospace")
        if row:
            axes.annotate("", (0.5, row + 0.16), (0.5, row - 0.16), arrowprops={"arrowstyle": "-|>", "color": GREY})
    axes.legend(
        handles=[Patch(facecolor=colors[kind], edgecolor=BLACK, label=kinds[kind])
                 for kind in kinds if any(step[1] == kind for step in steps)],
        loc="upper left", bbox_to_anchor=(0, -0.06), ncols=3,
    )  # fmt: skip
    _number_rows(axes, len(steps), 7.6)
    return fig


def tiles(maps, columns=None):
    """Small images side by side as one array [H, W], NaN in the gaps between them.

    maps: [C, h, w], or [C] for C values, which become squares. columns: of the grid; by default a divisor of C that
    makes the grid about twice as wide as it is high.
    """
    maps = np.asarray(maps, dtype=np.float32)
    if maps.ndim not in (1, 3) or not len(maps):
        raise ValueError(f"tiles() expects [C, h, w] or [C] with C > 0; found {list(maps.shape)}.")
    maps = maps.reshape(len(maps), *(maps.shape[1:] or (1, 1)))
    count, height, width = maps.shape
    columns = columns or max(n for n in range(1, count + 1) if count % n == 0 and n * n <= 4 * count)
    sheet = np.full((-(-count // columns) * (height + 1) - 1, columns * (width + 1) - 1), np.nan, dtype=np.float32)
    for i, tile in enumerate(maps):
        row, column = divmod(i, columns)
        sheet[row * (height + 1) :, column * (width + 1) :][:height, :width] = tile
    return sheet


def channels(maps, title, label="value", symmetric=False, columns=None):
    """Kernels or feature maps, [C, h, w] or [C], on one common scale.

    symmetric: orange below zero, purple above, white at zero; otherwise black is the smallest value and white the
    largest. label: what the values are, beside the scale.
    """
    maps = np.asarray(maps)
    if maps.ndim == 3 and maps.shape[2] < 12:  # else the gaps would be as wide as the pixels
        maps = maps.repeat(-(-12 // maps.shape[2]), axis=1).repeat(-(-12 // maps.shape[2]), axis=2)
    sheet = tiles(maps, columns)
    shape = sheet.shape[0] / sheet.shape[1]
    fig = Figure(figsize=(7, min(6, max(1.4, 5.9 * shape + 0.5))))
    axes = fig.add_subplot(title=title)
    top = float(np.nanmax(np.abs(sheet))) or 1.0
    look = {"cmap": "PuOr", "vmin": -top, "vmax": top} if symmetric else {"cmap": "gray"}
    drawn = axes.imshow(np.ma.masked_invalid(sheet), **look)
    axes.set_facecolor("#B8C4CE")  # the gaps: neither black nor white nor on the scale
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    fig.colorbar(drawn, ax=axes, label=label, shrink=0.9)
    return fig
