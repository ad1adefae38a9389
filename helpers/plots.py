"""What the course draws: one look, colours for the colour-blind, small pictures with alternative text.

Every drawing function returns a matplotlib Figure and shows nothing; `show(fig, alt=...)` does that.
The figures are made without pyplot's window management, so no back end is needed and nothing appears twice.
"""

import io
import time
from base64 import b64encode

import matplotlib
import numpy as np
from IPython.display import display
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = PALETTE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's eight colours, which people with any common colour blindness can tell apart."""

GREY = "#767676"
DPI = 100
LEVELS = {"good": ("#B5E2D3", "✓"), "warn": ("#F9EDB0", "!"), "bad": ("#F3C3A5", "✗")}
"""For grid(): fill colour and sign of a cell; the sign says the same as the colour."""


def style():
    """Set matplotlib's defaults to the course's look. Called once when this module is imported."""
    matplotlib.rcParams.update(
        {
            "figure.dpi": DPI,
            "figure.facecolor": "white",  # readable in JupyterLab's dark theme too
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.prop_cycle": matplotlib.cycler(color=[BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, BLACK]),
            "grid.color": "#E4E4E4",
            "legend.frameon": False,
            "image.cmap": "gray",
            "image.interpolation": "nearest",
        }
    )


def png(fig):
    """The figure as PNG bytes with a palette of at most 128 colours, a third of matplotlib's own file."""
    drawn = io.BytesIO()
    fig.savefig(drawn, format="png", dpi=DPI)
    small = io.BytesIO()
    # Median cut would merge a thin accent line into grey; maximum coverage keeps rare colours.
    picture = Image.open(drawn).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE, dither=0)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def picture_bundle(fig, alt):
    """(data, metadata) of a Jupyter output: image/png, and `alt` both as its alternative and as text/plain.

    Raises ValueError when `alt` is empty.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(
            f"A figure needs alternative text, found alt={alt!r}. "
            "Say in one sentence what the picture shows, without numbers that differ from run to run."
        )
    data = {"image/png": b64encode(png(fig)).decode("ascii"), "text/plain": alt}
    return data, {"image/png": {"alt": alt}}


def show(fig, alt):
    """Display a figure as a PNG with alternative text, and close it so that no back end shows it again.

    `alt` is also the output's text/plain, which tests compare: no number in it may depend on the machine.
    Raises ValueError when `alt` is empty.
    """
    data, metadata = picture_bundle(fig, alt)
    pyplot.close(fig)
    display(data, metadata=metadata, raw=True)


def _axes(title, xlabel, ylabel, size=(6.4, 3.4)):
    fig = Figure(figsize=size)
    axes = fig.add_subplot()
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return fig, axes


def digits(images, titles=None, wrong=None, columns=10, title=None):
    """A grid of digits.

    images: [N, 28, 28], any numeric dtype; each is shown from its own darkest to its own brightest pixel.
    titles: N texts. wrong: N booleans; a wrong one gets a ✗ and an orange-red frame and title.
    """
    images = np.asarray(images)
    if images.ndim != 3 or not len(images):
        raise ValueError(f"digits() expects images [N, 28, 28], N > 0; found {list(images.shape)}.")
    for name, given in (("titles", titles), ("wrong", wrong)):
        if given is not None and len(given) != len(images):
            raise ValueError(f"digits() expects as many {name} as images, {len(images)}; found {len(given)}.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    width = 0.85 if titles is None or max(len(str(t)) for t in titles) < 9 else 1.3
    height = width + 0.3 * (titles is not None)
    fig = Figure(figsize=(width * columns + 0.2, height * rows + 0.35 * bool(title)))
    cells = fig.subplots(rows, columns, squeeze=False).ravel()
    for cell in cells:
        cell.set_axis_off()
    for i, (cell, image) in enumerate(zip(cells, images, strict=False)):
        cell.imshow(image)
        bad = wrong is not None and bool(wrong[i])
        if titles is not None:
            cell.set_title(
                f"{titles[i]}{' ✗' if bad else ''}", loc="center", color=VERMILION if bad else BLACK,
                fontsize=9, fontweight="bold" if bad else "normal",
            )  # fmt: skip
        if bad:
            cell.add_patch(
                matplotlib.patches.Rectangle((-0.5, -0.5), 28, 28, fill=False, color=VERMILION, linewidth=3)
            )
    if title:
        fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return fig


def training_curves(history, title="Training"):
    """Loss over the steps, accuracy over the epochs.

    history: list of dicts, each {"step": n, "loss": x} or {"epoch": n, "accuracy": share in 0..1} or both.
    A curve without records is drawn as empty axes.
    """
    losses = [(r["step"], r["loss"]) for r in history if "step" in r and "loss" in r]
    accuracies = [(r["epoch"], r["accuracy"]) for r in history if "epoch" in r and "accuracy" in r]
    fig = Figure(figsize=(8, 3))
    left, right = fig.subplots(1, 2)
    left.set(title=f"{title}: loss", xlabel="step (one batch each)", ylabel="cross-entropy (nats)")
    right.set(title=f"{title}: accuracy", xlabel="epoch", ylabel="right answers")
    if losses:
        steps, values = np.array(losses, dtype=float).T
        smooth = max(1, len(values) // 40)
        left.plot(steps, values, color=SKY, linewidth=0.8, label="each step")
        if smooth > 1:
            mean = np.convolve(values, np.ones(smooth) / smooth, mode="valid")
            left.plot(steps[smooth - 1 :], mean, color=BLUE, linewidth=1.8, label=f"mean of {smooth} records")
        left.set_yscale("log")
        left.legend(loc="upper right")
    if accuracies:
        epochs, shares = np.array(accuracies, dtype=float).T
        right.plot(epochs, shares, "o-", color=VERMILION)
        for epoch, share in accuracies:
            right.annotate(
                f"{share:.2%}", (epoch, share), (0, -14), textcoords="offset points", ha="center", fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )  # fmt: skip
        right.margins(x=0.15, y=0.25)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    right.yaxis.set_major_formatter(PercentFormatter(1))
    return fig


class LivePlot:
    """Training curves that redraw themselves in one place while the loop runs.

        with LivePlot(alt="Loss falls, accuracy rises.") as live:
            for ...:
                live.add({"step": step, "loss": loss})

    Redrawn at most every `seconds`, and once at the end, also when the loop is interrupted. Each drawing
    replaces the one before, so the notebook keeps one output. Outside a Jupyter kernel only the end is shown.
    `history` is the list of what was added.
    """

    def __init__(self, alt, title="Training", seconds=2.0):
        self.alt, self.title, self.seconds = alt, title, seconds
        self.history = []
        self._output = None
        self._drawn = 0.0

    def __enter__(self):
        if _in_kernel():
            self._draw()
        return self

    def __exit__(self, *error):
        self._draw()

    def add(self, record):
        """Append one dict of `training_curves`' history; redraw when the last drawing is old enough."""
        self.history.append(dict(record))
        if _in_kernel() and time.monotonic() - self._drawn > self.seconds:
            self._draw()

    def _draw(self):
        data, metadata = picture_bundle(training_curves(self.history, self.title), self.alt)
        if self._output is None:
            self._output = display(data, metadata=metadata, raw=True, display_id=True)
        else:
            self._output.update(data, metadata=metadata, raw=True)
        self._drawn = time.monotonic()  # after drawing, so that slow drawing can't eat the loop


def _in_kernel():
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def confusion_matrix(matrix, title="Which digit is taken for which"):
    """matrix: int [10, 10], row = true digit, column = answer. Only the mistakes are coloured."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"confusion_matrix() expects a square matrix; found shape {list(matrix.shape)}.")
    mistakes = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    fig, axes = _axes(title, "answer of the network", "true digit", (5.6, 5.2))
    axes.imshow(mistakes, cmap="Blues", vmax=max(1, 2 * mistakes.max()))
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            axes.text(
                column, row, str(count), ha="center", va="center", fontsize=8,
                color=GREY if row == column else BLACK, fontweight="normal" if row == column else "bold",
            )  # fmt: skip
    axes.set(xticks=range(len(matrix)), yticks=range(len(matrix)))
    axes.grid(False)
    return fig


def _draw_probabilities(axes, probs):
    """Ten horizontal bars; the winner is darker and its number bold, so that it stands out without colour."""
    probs = np.asarray(probs, dtype=float).ravel()
    best = int(probs.argmax())
    axes.barh(range(len(probs)), probs, color=[BLUE if i == best else SKY for i in range(len(probs))])
    for i, p in enumerate(probs):
        weight = "bold" if i == best else "normal"
        axes.text(p + 0.015, i, f"{p:.1%}", va="center", fontsize=9, fontweight=weight)
    axes.set(xlim=(0, 1.16), yticks=range(len(probs)), xticks=np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.invert_yaxis()
    axes.grid(False, axis="y")


def probabilities(probs, title="What the network thinks"):
    """probs: float [10], shares that sum to 1, as horizontal bars."""
    fig, axes = _axes(title, "probability", "digit", (5, 3.2))
    _draw_probabilities(axes, probs)
    return fig


def guess(image, probs, title="One digit and its answer"):
    """image: [28, 28] as the network sees it; probs: float [10]. Picture at the left, bars at the right."""
    fig = Figure(figsize=(7.2, 3.2))
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.5])
    left.imshow(image)
    left.set(title=title, xlabel="pixel", ylabel="pixel")
    left.grid(False)
    right.set(title=f"Answer: {int(np.argmax(probs))}", xlabel="probability", ylabel="digit")
    _draw_probabilities(right, probs)
    return fig


def op_bars(before, after, title="Operations before and after", names=("before: ONNX", "after: MNN")):
    """before, after: {operation: count}. Pairs of bars, a vanished or new operation with an explicit 0."""
    ops = sorted({*before, *after}, key=lambda op: (-before.get(op, 0), -after.get(op, 0), op))
    fig, axes = _axes(title, "number of operations", "operation", (6.4, 0.42 * len(ops) + 1.1))
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
    fig, axes = _axes(title, f"{names[0]} at the left, {names[1]} at the right", "position in the graph",
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
    axes.add_patch(matplotlib.patches.Rectangle(*box, facecolor=color, edgecolor=BLACK, linewidth=0.8))
    axes.text(left + 0.5, top + height / 2, text, ha="center", va="center", fontsize=9)


def flow(steps, kinds, title, marked=()):
    """A chain of boxes from top to bottom, what each one is about at its right.

    steps: list of (name, kind, text); a second line of the text, after a newline, is set small. kinds: {kind: meaning},
    the legend, at most six. marked: names of steps that get a thick frame and a star. Raises ValueError for a kind
    without meaning.
    """
    fig, axes = _axes(title, "what is done", "step", (9.2, 0.62 * len(steps) + 1.0))
    colors = dict(zip(kinds, (SKY, YELLOW, ORANGE, PURPLE, GREEN, "#DDDDDD"), strict=False))
    for row, (name, kind, text) in enumerate(steps):
        if kind not in kinds:
            raise ValueError(f"flow() knows the kinds {list(kinds)}; found {kind!r} in step {name!r}.")
        thick = 2.4 if name in marked else 0.8
        box = matplotlib.patches.Rectangle(
            (0, row + 0.16), 1, 0.68, facecolor=colors[kind], edgecolor=BLACK, linewidth=thick
        )
        axes.add_patch(box)
        axes.text(0.5, row + 0.5, f"{name} *" if name in marked else name, ha="center", va="center", fontsize=10)
        head, _, small = text.partition("\n")
        axes.text(1.1, row + (0.34 if small else 0.5), head, va="center", fontsize=9)
        axes.text(1.1, row + 0.68, small, va="center", fontsize=7.5, color=GREY, family="monospace")
        if row:
            axes.annotate("", (0.5, row + 0.16), (0.5, row - 0.16), arrowprops={"arrowstyle": "-|>", "color": GREY})
    axes.legend(
        handles=[matplotlib.patches.Patch(facecolor=colors[kind], edgecolor=BLACK, label=kinds[kind])
                 for kind in kinds if any(step[1] == kind for step in steps)],
        loc="upper left", bbox_to_anchor=(0, -0.06), ncols=3,
    )  # fmt: skip
    _number_rows(axes, len(steps), 7.6)
    return fig


def sizes_and_accuracy(rows, title="Size of the file and accuracy"):
    """rows: list of (name, bytes, accuracy in 0..1 or None). Bars in kB (1,000 bytes)."""
    fig, axes = _axes(title, "size of the file (kB, 1,000 bytes)", "variant", (6.8, 0.5 * len(rows) + 1.0))
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
    fig, axes = _axes(title, "absolute difference (logits)", "share of the values")
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
    fig, axes = _axes(title, "size of the reference value |r|", "difference |c - r|", (6.8, 4))
    axes.plot(x[~outside], y[~outside], ",", color=BLUE)
    axes.plot(x[outside], y[outside], "x", color=VERMILION, markersize=4)
    line = np.geomspace(x.min(), max(x.max(), 2 * x.min()), 200)
    axes.plot(line, np.maximum(atol + rtol * line, floor), color=BLACK)
    axes.set(xscale="log", yscale="log")
    axes.legend(
        handles=[
            matplotlib.lines.Line2D([], [], color=BLACK, label="atol + rtol · |r|"),
            matplotlib.lines.Line2D([], [], color=BLUE, marker="o", markersize=3, linestyle="",
                                    label=f"{int((~outside).sum()):,} inside"),
            matplotlib.lines.Line2D([], [], color=VERMILION, marker="x", markersize=5, linestyle="",
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
    fig, axes = _axes(title, column_label, row_label, size)
    for (row, column), (text, level) in cells.items():
        x, y = list(columns).index(column), list(rows).index(row)
        color, sign = LEVELS[level]
        axes.add_patch(matplotlib.patches.Rectangle((x - 0.5, y - 0.5), 1, 1, color=color, linewidth=0))
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
    fig, axes = _axes(title, xlabel, ylabel, (6.8, 0.36 * len(rows) + 1.0))
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
    fig, axes = _axes(title, xlabel, ylabel, (7.2, 0.45 * len(rows) + 1.0))
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


style()
