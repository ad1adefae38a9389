"""The drawing pad: what it makes of a drawing, what it shows, what it says about bad input."""

import gzip
import re
from importlib import resources

import numpy as np
import pytest
import traitlets

from helpers import plots, widgets
from helpers.paths import DATA
from helpers.widgets import SIDE, DigitGuesser, DigitPad, ImagePicker, mnist_style, static_guess


@pytest.fixture(scope="module")
def real_digits():
    """The 10,000 test images, uint8 [10000, 28, 28], read here without the course's code."""
    with gzip.open(DATA / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)


def centre_of_mass(image):
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    return (y * image).sum() / image.sum(), (x * image).sum() / image.sum()


def drawn(pad, raw):
    """Put a raw drawing into the pad as the browser does: through the synchronized state."""
    pad.set_state({"pixels": memoryview(raw.astype(np.uint8).tobytes())})
    return pad


def test_a_bar_drawn_in_a_corner_is_fitted_into_20x20_and_centred():
    drawing = np.zeros((SIDE, SIDE), np.float32)
    drawing[3:43, 120:130] = 1  # 40 x 10 pixels, top right
    image = mnist_style(drawing)
    expected = np.zeros((28, 28), np.float32)
    expected[4:24, 12:17] = 1  # 20 x 5; its centre of mass (13.5, 14) is the nearest that whole pixels allow
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("seed", range(20))
def test_any_drawing_ends_in_a_20x20_box_with_its_centre_of_mass_in_the_middle(seed):
    rng = np.random.default_rng(seed)
    height, width = rng.integers(8, 90, 2)
    top, left = rng.integers(0, SIDE - height), rng.integers(0, SIDE - width)
    drawing = np.zeros((SIDE, SIDE), np.float32)
    drawing[top : top + height, left : left + width] = rng.random((height, width)) * 0.5 + 0.5
    image = mnist_style(drawing)
    rows, columns = np.nonzero(image)
    assert max(np.ptp(rows), np.ptp(columns)) + 1 == 20
    wanted = 20 * min(height, width) / max(height, width)
    assert abs(min(np.ptp(rows), np.ptp(columns)) + 1 - wanted) <= 0.5 + 1e-9
    assert np.abs(np.array(centre_of_mass(image)) - 14).max() <= 0.5 + 1e-4
    assert image.min() >= 0 and image.max() <= 1


def test_grey_levels_are_means_of_the_area_that_each_pixel_covers():
    drawing = np.zeros((SIDE, SIDE), np.float32)
    drawing[20:120, 20:120] = np.random.default_rng(0).random((100, 100)) + 0.01
    drawing = drawing.clip(0, 1)
    expected = drawing[20:120, 20:120].reshape(20, 5, 20, 5).mean(axis=(1, 3))
    image = mnist_style(drawing)
    np.testing.assert_allclose(image[4:24, 4:24], expected, atol=1e-6)


def test_ink_far_from_the_centre_of_mass_is_not_cut_off():
    drawing = np.zeros((SIDE, SIDE), np.float32)
    drawing[0:20, 0:20] = 1
    drawing[139, 139] = 0.01  # stretches the box, hardly moves the centre of mass
    image = mnist_style(drawing)
    rows, columns = np.nonzero(image)
    assert np.ptp(rows) == np.ptp(columns) == 19


def test_real_mnist_digits_are_left_as_they_are(real_digits):
    changed = 0
    for image in real_digits[:2000]:
        pad = DigitPad()
        pad.set_image(image)
        changed += not np.allclose(pad.image, image / 255, atol=1e-6)
        pad.close()
    assert changed <= 2  # 3 of the 10,000 are one pixel smaller than MNIST's rule says


def test_an_empty_pad_is_all_zeros():
    pad = DigitPad()
    assert pad.image.shape == (28, 28) and pad.image.dtype == np.float32 and not pad.image.any()
    assert pad.raw().shape == (SIDE, SIDE) and not pad.raw().any()
    pad.set_image(np.eye(28))
    pad.clear()
    assert not pad.image.any()


def test_set_image_shows_each_pixel_as_a_square_of_the_raw_drawing():
    digit = np.random.default_rng(1).integers(0, 256, (28, 28)).astype(np.uint8)
    pad = DigitPad()
    pad.set_image(digit)
    np.testing.assert_array_equal(pad.raw()[2::5, 2::5], digit)
    pad.set_image(digit / 255)
    np.testing.assert_array_equal(pad.raw()[::5, 4::5], digit)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((1, 28, 28)), r"\[28, 28\], found \[1, 28, 28\]"),
        (np.full((28, 28), 2.8), r"floats in 0\.\.1; found float64 from 2\.8 to 2\.8.*before normalization"),
        (np.full((28, 28), np.nan), r"found float64 from nan"),
    ],
)
def test_set_image_refuses_what_is_not_a_plain_digit(image, message):
    with pytest.raises(ValueError, match=message):
        DigitPad().set_image(image)


def test_a_drawing_of_the_wrong_length_is_refused():
    with pytest.raises(traitlets.TraitError, match="140 x 140 = 19600 bytes.*found 784"):
        DigitPad().pixels = bytes(784)


def test_what_the_browser_sends_reaches_the_callback_as_an_image():
    seen = []
    pad = DigitPad(on_change=lambda pad: seen.append(pad.image))
    raw = np.zeros((SIDE, SIDE))
    raw[20:120, 60:80] = 255
    drawn(pad, raw)
    assert isinstance(pad.pixels, bytes)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0][4:24, 12:16], 1)


def test_the_raw_drawing_is_a_copy():
    pad = DigitPad()
    pad.set_image(np.eye(28))
    pad.raw()[:] = 0
    assert pad.raw().any()


def fake_classify(seen):
    def classify(batch):
        seen.append(batch)
        logits = np.zeros((1, 10), np.float32)
        logits[0, 7] = np.log(91)  # softmax: 91 / (91 + 9) for the 7, 1 % for each other digit
        return logits

    return classify


def guess_of(guesser):
    return re.search(r'class="mnn-guess"[^>]*>([^<]*)<', guesser.answer.value).group(1)


def test_the_guesser_normalizes_the_drawing_and_shows_the_answer_with_its_probability():
    batches = []
    guesser = DigitGuesser(fake_classify(batches))
    assert guess_of(guesser) == "–" and not batches  # nothing drawn: the network isn't asked
    guesser.pad.set_image(np.eye(28)[::-1])
    assert guess_of(guesser) == "7"
    assert "91.0%" in guesser.answer.value and guesser.answer.value.count("1.0%</span>") == 10
    (batch,) = batches
    assert batch.shape == (1, 1, 28, 28) and batch.dtype == np.float32
    np.testing.assert_allclose(batch[0, 0] * 0.3081 + 0.1307, guesser.pad.image, atol=1e-6)
    guesser.pad.clear()
    assert guess_of(guesser) == "–"


def test_an_exception_of_classify_is_shown_in_red_and_the_widget_goes_on():
    state = {"broken": True}

    def classify(batch):
        if state["broken"]:
            raise RuntimeError("no model <loaded>")
        return np.eye(10)[[3]]

    guesser = DigitGuesser(classify, example=np.eye(28))
    assert "RuntimeError: no model &lt;loaded&gt;" in guesser.answer.value
    assert "mnn-error" in guesser.answer.value and "color:#C62828" in guesser.answer.value
    assert isinstance(guesser.error, RuntimeError)
    state["broken"] = False
    guesser.pad.set_image(np.eye(28) * 0.5)
    assert guess_of(guesser) == "3" and guesser.error is None


def test_logits_of_another_shape_are_named_in_the_widget():
    guesser = DigitGuesser(lambda batch: np.zeros(10), example=np.eye(28))
    assert "classify() must return logits [1, 10] for one image, found [10]" in guesser.answer.value


def test_readers_without_a_kernel_get_a_picture_with_alternative_text(real_digits):
    guesser = DigitGuesser(fake_classify([]), example=real_digits[0])
    data, metadata = guesser._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"] and "pad" in metadata["image/png"]["alt"]
    assert data["text/plain"] == metadata["image/png"]["alt"]
    data, metadata = DigitPad()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data and "image/png" not in data
    assert "0x" not in data["text/plain"]  # no address of the object, which changes with every run


def test_static_guess_draws_the_probabilities_of_the_softmax(real_digits):
    figure = static_guess(fake_classify([]), real_digits[0] / 255)
    assert [round(bar.get_width(), 6) for bar in figure.axes[1].patches] == [0.01] * 7 + [0.91] + [0.01] * 2


def test_the_image_picker_draws_the_chosen_image_and_shows_an_error():
    def draw(image):
        if image.max() == 0:
            raise ValueError("nothing to see")
        return plots.digits(image[None])

    picker = ImagePicker(np.stack([np.eye(28), np.zeros((28, 28))]), ["one", "<two>"], draw)
    assert 'alt="image 0, label one"' in picker.picture.value and "data:image/png" in picker.picture.value
    data, metadata = picker._repr_mimebundle_()
    assert data["image/png"] and "label one" in metadata["image/png"]["alt"]
    picker.slider.value = 1
    assert "ValueError: nothing to see" in picker.picture.value
    assert "image/png" not in picker._repr_mimebundle_()[0]


def test_the_pad_is_shipped_and_loads_nothing_from_the_web():
    source = resources.files("helpers").joinpath("pad.js").read_text(encoding="utf-8")
    assert str(widgets.DigitPad._esm) == source
    assert not re.search(r"https?:|//[a-z]+\.|\bimport\b|\bfetch\(", source)
    assert "aria-label" in source and "pointerdown" in source
