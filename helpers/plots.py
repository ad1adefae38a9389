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
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = PALETTE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's eight colours, which people with any common colour blindness can tell apart."""

GREY = "#767676"
DPI = 100


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


def titled_axes(title, xlabel, ylabel, size=(6.4, 3.4)):
    """(figure, axes): one chart with its title and the names of its axes, units included; size in inches."""
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
            cell.add_patch(Rectangle((-0.5, -0.5), 28, 28, fill=False, color=VERMILION, linewidth=3))
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
    fig, axes = titled_axes(title, "answer of the network", "true digit", (5.6, 5.2))
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
    fig, axes = titled_axes(title, "probability", "digit", (5, 3.2))
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


style()
