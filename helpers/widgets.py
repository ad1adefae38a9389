"""What the course plays with: a pad to draw a digit on, a live guess beside it, a slider over images.

Every widget shows an error of the function it calls in red instead of hiding it, and carries a picture for
readers without a running kernel (on a code host, in exported HTML).
"""

import html
import io
from base64 import b64encode
from pathlib import Path

import anywidget
import ipywidgets
import numpy as np
import traitlets
from PIL import Image

from . import plots
from .data import MEAN, STD

SIDE = 140
"""Pixels along one side of the raw drawing: 5 for each pixel of a 28x28 digit."""


def mnist_style(drawing):
    """Prepare a drawing as MNIST's digits were: float32 [28, 28] in 0..1, zeros when the drawing is empty.

    drawing: [H, W], ink > 0 on background 0, floats in 0..1.

    The rule is that of the MNIST page (LeCun, Cortes, Burges), used in LeCun, Bottou, Bengio, Haffner,
    "Gradient-based learning applied to document recognition", 1998: the digit is scaled into a 20x20 box
    keeping its aspect ratio, with grey levels from anti-aliasing, and moved by whole pixels so that its
    centre of mass lies in the middle of a 28x28 field (pixel 14, 14, counted from 0). MNIST's own digits pass
    unchanged.
    """
    drawing = np.asarray(drawing, dtype=np.float32)
    rows, columns = np.flatnonzero(drawing.any(axis=1)), np.flatnonzero(drawing.any(axis=0))
    field = np.zeros((28, 28), dtype=np.float32)
    if not len(rows):
        return field
    digit = drawing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = (max(1, round(20 * length / max(digit.shape))) for length in digit.shape)
    # BOX takes the mean of the area that each new pixel covers.
    digit = np.asarray(Image.fromarray(digit).resize((width, height), Image.Resampling.BOX))
    mass = digit.sum()
    top = round(14 - float(digit.sum(axis=1) @ np.arange(height)) / mass)
    left = round(14 - float(digit.sum(axis=0) @ np.arange(width)) / mass)
    top, left = min(max(top, 0), 28 - height), min(max(left, 0), 28 - width)  # never cut off ink
    field[top : top + height, left : left + width] = digit.clip(0, 1)
    return field


def _bytes_of(value, _widget):
    """What the browser sent, as bytes: buffers of a message arrive as memoryviews."""
    return bytes(value)


class DigitPad(anywidget.AnyWidget):
    """A square to draw a digit on, with mouse, pen or finger.

        pad = DigitPad()
        pad                 # draw …
        pad.image           # … and read: float32 [28, 28] in 0..1, prepared as MNIST's digits were

    on_change: called with the pad while the learner draws (about eight times a second) and after each stroke.
    """

    _esm = Path(__file__).with_name("pad.js")
    side = traitlets.Int(SIDE, read_only=True).tag(sync=True)
    pixels = traitlets.Bytes(b"").tag(sync=True, from_json=_bytes_of)

    def __init__(self, on_change=None):
        super().__init__()
        if on_change is not None:
            self.observe(lambda _change: on_change(self), names="pixels")

    @traitlets.validate("pixels")
    def _right_length(self, proposal):
        if len(proposal["value"]) not in (0, SIDE * SIDE):
            raise traitlets.TraitError(
                f"DigitPad.pixels expects {SIDE} x {SIDE} = {SIDE * SIDE} bytes, or none for an empty pad; "
                f"found {len(proposal['value'])}. To load a digit use set_image()."
            )
        return proposal["value"]

    def raw(self):
        """The drawing as it is on the pad: uint8 [140, 140], 0 = background. A copy."""
        if not self.pixels:
            return np.zeros((SIDE, SIDE), dtype=np.uint8)
        return np.frombuffer(self.pixels, dtype=np.uint8).reshape(SIDE, SIDE).copy()

    @property
    def image(self):
        """The drawing as the network should get it, before normalization: `mnist_style(raw() / 255)`."""
        return mnist_style(self.raw() / np.float32(255))

    def set_image(self, image):
        """Put a digit on the pad: [28, 28], uint8 (0..255) or floats in 0..1; 0 = background.

        Raises ValueError for another shape, or for floats outside 0..1.
        """
        image = np.asarray(image)
        if image.shape != (28, 28):
            raise ValueError(f"set_image() expects one image [28, 28], found {list(image.shape)}.")
        if image.dtype != np.uint8:
            if not (image.min() >= 0 and image.max() <= 1):  # written so that NaN is refused too
                raise ValueError(
                    f"set_image() expects uint8, or floats in 0..1; found {image.dtype} from {image.min()} "
                    f"to {image.max()}. Pass the image before normalization."
                )
            image = np.round(image * 255.0).astype(np.uint8)
        self.pixels = np.kron(image, np.ones((SIDE // 28, SIDE // 28), dtype=np.uint8)).tobytes()

    def clear(self):
        """Wipe the pad."""
        self.pixels = b""

    def _repr_mimebundle_(self, **kwargs):
        figure = plots.digits(self.image[None]) if self.image.any() else None
        return _bundle(super()._repr_mimebundle_(**kwargs), "A pad to draw a digit on.", figure)


def probabilities_of(classify, image):
    """What `classify` thinks of an image [28, 28] in 0..1: float64 [10], the softmax of its logits.

    classify: float32 [1, 1, 28, 28], normalized → logits [1, 10]; an MnnModule, for example.
    Raises ValueError when it returns another shape.
    """
    batch = ((np.asarray(image) - MEAN) / STD).astype(np.float32)[None, None]
    logits = np.asarray(classify(batch), dtype=np.float64)
    if logits.shape != (1, 10):
        raise ValueError(f"classify() must return logits [1, 10] for one image, found {list(logits.shape)}.")
    powers = np.exp(logits[0] - logits.max())
    return powers / powers.sum()


def static_guess(classify, image):
    """A Figure of one digit ([28, 28] in 0..1) and its probabilities, for readers without a kernel."""
    return plots.guess(image, probabilities_of(classify, image), title="What the network sees")


class DigitGuesser(ipywidgets.HBox):
    """A DigitPad, and beside it what the network thinks of the drawing while it is being drawn.

    classify: float32 [1, 1, 28, 28], normalized → logits [1, 10]. Its exception is shown in red and kept in
    `error`; the widget goes on.
    example: an image [28, 28] to begin with, also the static reader's picture.
    """

    def __init__(self, classify, example=None):
        self.classify = classify
        self.error = None
        self.pad = DigitPad(on_change=lambda _pad: self._update())
        self.answer = ipywidgets.HTML(layout={"margin": "0 0 0 20px"})
        super().__init__([self.pad, self.answer])
        if example is not None:
            self.pad.set_image(example)
        else:
            self._update()

    def _update(self):
        self.error = None
        image = self.pad.image
        try:
            probs = probabilities_of(self.classify, image) if image.any() else None
        except Exception as error:
            # An exception in a widget's callback would end in a log that no learner reads.
            self.error = error
            self.answer.value = red(error)
        else:
            self.answer.value = _answer_html(image, probs)

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        image = self.pad.image
        if self.error is not None or not image.any():
            return _bundle(bundle, "A pad to draw a digit on.")
        alt = "A pad to draw a digit on, with an example, and the network's probability of each digit."
        return _bundle(bundle, alt, static_guess(self.classify, image))


class ImagePicker(ipywidgets.VBox):
    """A slider over images; below it whatever `draw` makes of the chosen one.

    images: [N, ...]; labels: N texts or numbers; draw: image → matplotlib Figure; its exception is
    shown in red.
    """

    def __init__(self, images, labels, draw):
        self.images, self.labels, self.draw = images, labels, draw
        self.slider = ipywidgets.IntSlider(max=len(images) - 1, description="image", continuous_update=False)
        self.picture = ipywidgets.HTML()
        super().__init__([self.slider, self.picture])
        self.slider.observe(self._update, names="value")
        self._update()

    def _update(self, _change=None):
        i = self.slider.value
        caption = f"image {i}, label {self.labels[i]}"
        try:
            picture = _img(plots.png(self.draw(self.images[i])), caption)
        except Exception as error:
            self.picture.value = red(error)
        else:
            self.picture.value = f"<div>{html.escape(caption)}</div>{picture}"

    def _repr_mimebundle_(self, **kwargs):
        i = self.slider.value
        alt = f"A slider over images; chosen: image {i}, label {self.labels[i]}."
        figure = None if "mnn-error" in self.picture.value else self.draw(self.images[i])
        return _bundle(super()._repr_mimebundle_(**kwargs), alt, figure)


def _bundle(bundle, alt, figure=None):
    """A widget's mimebundle with a readable text/plain and, for readers without a kernel, an image/png."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    picture, alternative = ({"text/plain": alt}, {}) if figure is None else plots.picture_bundle(figure, alt)
    return {**data, **picture}, {**metadata, **alternative}


def _img(data, alt, css_class=""):
    encoded = b64encode(data).decode("ascii")
    # decoding=sync: the new picture is there when the old one goes, so nothing flickers.
    source = f"data:image/png;base64,{encoded}"
    return f'<img class="{css_class}" alt="{html.escape(alt)}" decoding="sync" src="{source}">'


def red(error):
    """An exception as HTML, for a widget: its type and its words in red."""
    text = html.escape(f"{type(error).__name__}: {error}")
    style = "color:#C62828;background:#FFF;padding:8px;white-space:pre-wrap;max-width:36em"
    return f'<pre class="mnn-error" role="alert" style="{style}">{text}</pre>'


_STYLE = f"""<style>
.mnn-answer {{ display: flex; gap: 24px; line-height: 1.2 }}
.mnn-answer > div:first-child {{ width: 90px }}
.mnn-guess {{ font-size: 80px; line-height: 96px; font-weight: 700 }}
.mnn-seen {{ width: 84px; height: 84px; image-rendering: pixelated; border-radius: 3px; display: block }}
.mnn-note {{ font-size: 11px; margin: 4px 0 }}
.mnn-bar {{ display: flex; align-items: center; height: 18px }}
.mnn-bar span:nth-child(1) {{ width: 1.2em }}
.mnn-bar span:nth-child(2) {{ width: 170px; height: 12px; background: rgba(128, 128, 128, .2) }}
.mnn-bar span:nth-child(3) {{ width: 4.8em; text-align: right; font-variant-numeric: tabular-nums }}
.mnn-bar i {{ display: block; height: 100%; background: {plots.SKY} }}
.mnn-best {{ font-weight: 700 }}
.mnn-best i {{ background: {plots.BLUE} }}
</style>"""


def _answer_html(image, probs):
    """The guess in large, the 28x28 picture the network gets, and ten bars. probs None: nothing drawn yet."""
    best = None if probs is None else int(probs.argmax())
    seen = io.BytesIO()
    Image.fromarray(np.round(image * 255).astype(np.uint8)).save(seen, format="png")
    picture = _img(seen.getvalue(), "the drawing at 28 by 28 pixels, as the network gets it", "mnn-seen")
    bars = "".join(
        f'<div class="mnn-bar{" mnn-best" if digit == best else ""}"><span>{digit}</span>'
        f'<span><i style="width:{p:.1%}"></i></span><span>{p:.1%}</span></div>'
        for digit, p in enumerate(np.zeros(10) if probs is None else probs)
    )
    return (
        f'{_STYLE}<div class="mnn-answer"><div>'
        f'<div class="mnn-guess" role="status">{"–" if best is None else best}</div>'
        f'{picture}<div class="mnn-note">what the network sees</div></div><div>'
        f'<div class="mnn-note">{"draw a digit" if best is None else "probability of each digit"}</div>'
        f"{bars}</div></div>"
    )
