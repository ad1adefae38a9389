import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import widgets_llm
from helpers.llm_quality import Original, Quality
from helpers.llm_size import Shape
from helpers.widgets_llm import MODELS, ChatBox, FitCalculator, QualityKnobs


class Talker:
    """In place of a ChatModel: says the words it is given, waiting for `go` after the first when `slow`."""

    def __init__(self, words, slow=False, error=None):
        self.words, self.slow, self.error = words, slow, error
        self.asked, self.options, self.resets, self.closed = [], [], 0, 0
        self.first_said, self.stopped = threading.Event(), threading.Event()
        self.reply = None

    def stream(self, question, **sampling):
        self.asked.append(question)
        self.options.append(sampling)
        self.stopped.clear()
        if self.error:
            raise self.error
        try:
            for word in self.words:
                yield word
                self.first_said.set()
                if self.slow:
                    self.stopped.wait(20)
                    if self.stopped.is_set():
                        return
        finally:
            self.closed += 1
            self.reply = SimpleNamespace(stats="7 tokens out & done")

    def stop(self):
        self.stopped.set()

    def reset(self):
        self.resets += 1


def asked(box, question):
    box.ask(question).join(20)
    assert not box.thread.is_alive()
    return box


# --- the chat ---


def test_answer_appears_below_its_question():
    box = asked(ChatBox(Talker(["It is ", "Paris", "."]), max_new_tokens=9), "Which city?")
    shown = box.conversation.value
    assert shown.index("Which city?") < shown.index("It is Paris.")
    assert box.chat.options == [{"max_new_tokens": 9}] and "7 tokens out &amp; done" in box.status.value
    assert not box.send_button.disabled and box.stop_button.disabled


def test_what_is_said_is_shown_as_text_not_as_html():
    box = asked(ChatBox(Talker(["<img src=x onerror=alert(1)>", "</div>"])), "<b>bold</b> & <script>")
    assert "<img" not in box.conversation.value and "&lt;img src=x" in box.conversation.value
    assert "<script>" not in box.conversation.value and "&lt;b&gt;bold" in box.conversation.value
    assert box.conversation.value.count("</div>") == box.conversation.value.count("<div")


def test_text_is_shown_while_it_is_written():
    box = ChatBox(Talker(["one ", "two"], slow=True))
    thread = box.ask("Count.")
    assert box.chat.first_said.wait(10) and thread.is_alive()
    assert box.send_button.disabled and not box.stop_button.disabled and "Count." in box.conversation.value
    box.interrupt()
    thread.join(10)


def test_stop_ends_the_answer_and_keeps_what_was_said():
    box = ChatBox(Talker(["one ", "two ", "three"], slow=True))
    thread = box.ask("Count.")
    box.chat.first_said.wait(10)
    box.stop_button.click()
    thread.join(10)
    assert not thread.is_alive() and box.chat.closed == 1
    assert "one " in box.conversation.value and "two" not in box.conversation.value
    assert not box.send_button.disabled and box.stop_button.disabled


@pytest.fixture
def browser(monkeypatch):
    """What the box waits for after Enter lasts until this Event is set."""
    done = threading.Event()
    clock = SimpleNamespace(sleep=lambda _seconds: done.wait(20), perf_counter=time.perf_counter)
    monkeypatch.setattr(widgets_llm, "time", clock)
    return done


def test_stop_before_the_model_was_asked_ends_the_answer_too(browser):
    talker = Talker(["a"] * 50)
    talker.stop = lambda: None  # as a model that has not begun: it takes no notice
    box = ChatBox(talker)
    box.question.value = "Go."
    box.send_button.click()
    box.stop_button.click()
    browser.set()
    box.thread.join(10)
    assert box.turns[0][1] == "a"


def test_clear_forgets_the_conversation_even_in_the_middle_of_an_answer():
    box = ChatBox(Talker(["one ", "two"], slow=True), example=[("Hm?", "So.")])
    box.ask("Count.")
    box.chat.first_said.wait(10)
    box.clear_button.click()
    assert not box.thread.is_alive() and box.chat.resets == 1 and box.turns == []
    assert "Count." not in box.conversation.value and "So." in box.conversation.value


def test_error_is_shown_in_red_and_the_question_comes_back():
    box = asked(ChatBox(Talker([], error=ValueError("too <long>"))), "Why?")
    assert "mnn-error" in box.status.value and "too &lt;long&gt;" in box.status.value
    assert isinstance(box.error, ValueError) and box.turns == [] and box.question.value == "Why?"
    box.chat.error, box.chat.words = None, ["fine"]
    asked(box, "And now?")
    assert box.error is None and "fine" in box.conversation.value


def test_enter_asks_what_is_typed_last(browser):
    box = ChatBox(Talker(["yes"]))
    box.question.value = "Is i"
    box.question._handle_custom_msg({"event": "submit"}, [])
    box.question.value = "Is it?"  # what a browser sends after Enter when the kernel was busy
    browser.set()
    box.thread.join(10)
    assert box.chat.asked == ["Is it?"] and box.question.value == ""


def test_empty_question_is_not_asked():
    box = ChatBox(Talker(["yes"]))
    box.question.value = "  "
    box.send_button.click()
    box.thread.join(10)
    assert box.chat.asked == [] and not box.send_button.disabled


def test_second_question_waits_for_the_first_answer():
    box = ChatBox(Talker(["one ", "two"], slow=True))
    thread = box.ask("Count.")
    with pytest.raises(RuntimeError, match="Press Stop"):
        box.ask("Again.")
    box.send_button.click()
    box.interrupt()
    thread.join(10)
    assert box.chat.asked == ["Count."]


def test_many_short_pieces_are_drawn_seldom():
    box, drawn = ChatBox(Talker(["x"] * 2000)), []
    box.conversation.observe(drawn.append, names="value")
    asked(box, "Go.")
    assert len(drawn) < 50 and "x" * 2000 in box.conversation.value


def test_reader_without_a_kernel_sees_the_example():
    box = ChatBox(Talker([]), example=[("What & why?", "Because.")])
    bundle = bundle_of(box)
    assert "What &amp; why?" in bundle["text/html"] and "Because." in bundle["text/html"]
    assert bundle["text/plain"].startswith("A chat")
    assert "application/vnd.jupyter.widget-view+json" in bundle


def bundle_of(widget):
    bundle = widget._repr_mimebundle_()
    return bundle[0] if isinstance(bundle, tuple) else bundle


def test_no_deprecated_call():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ChatBox(Talker([]))
        FitCalculator()
        QualityKnobs(ORIGINAL, ROWS)


# --- the calculator ---


def test_calculator_follows_its_fields():
    box = FitCalculator({"seven": Shape(7_000_000_000, 32, 32, 32, 128, 4096)})
    box.bits.value, box.block.value, box.kv_bytes.value = 4, None, 2
    assert box.sizes() == (3.5e9, 2 * 1024**3)
    assert "3.500" in box.answer.value and "2.147" in box.answer.value and "5.647" in box.answer.value
    box.block.value = 64
    assert box.sizes()[0] == 3.5e9 + 7e9 / 64 * 8
    box.bits.value = 16  # nobody keeps scales for these
    assert box.sizes()[0] == 14e9
    box.tokens.value = 0
    assert box.sizes()[1] == 0


def test_calculator_starts_from_a_model():
    box = FitCalculator()
    box.model.value = "Llama-3.1-8B"
    shape = MODELS["Llama-3.1-8B"]
    assert (box.layers.value, box.kv_heads.value, box.head_dim.value) == (shape.layers, 8, 128)
    assert box.billions.value == pytest.approx(8.03, abs=0.01) and box.tokens.value == 4096


def test_reader_without_a_kernel_sees_all_models():
    bundle = bundle_of(FitCalculator({"seven": Shape(7_000_000_000, 32, 32, 32, 128, 4096)}))
    for cell in ("seven", "28.00", "14.00", "7.88", "4.38", "4.29"):
        assert f">{cell}<" in bundle["text/html"]


# --- the knobs ---

ORIGINAL = Original("m", ("a",) * 20, (), np.zeros((20, 6)), (1, 2, 3), np.zeros((3, 6)), 1, 16)
ROW = dict(
    block=32, activation_scales=0, cosine=1.0, worst_cosine=1.0, text_top1=1.0, text_kl=0.0, bytes=168_000_000,
    peak_bytes=720_000_000, prefill_speed=300.0, decode_speed=33.0,
)  # fmt: skip
ROWS = [
    Quality(name="8 bits, memory high", bits=8, memory="high", top1=1.0, kl=0.0001, perplexity=38.4, **ROW),
    Quality(name="8 bits, memory low", bits=8, memory="low", top1=0.75, kl=0.05, perplexity=39.9, **ROW),
]


def test_measurement_is_shown_after_the_guess_only():
    box = QualityKnobs(ORIGINAL, ROWS)
    box.choice.value = "8 bits, memory low"
    assert box.answer.value == ""
    box.guess.value = 17
    box.show_button.click()
    assert "2 off" in box.answer.value and "15 of 20" in box.answer.value and "39.90" in box.answer.value
    box.choice.value = "8 bits, memory high"
    assert box.answer.value == ""
    box.guess.value = 20
    box.show_button.click()
    assert "Right." in box.answer.value and "6.00" in box.answer.value  # the original's perplexity


def test_reader_without_a_kernel_sees_every_row():
    table = bundle_of(QualityKnobs(ORIGINAL, ROWS))["text/html"]
    assert "8 bits, memory high" in table and "15 of 20" in table and "720 MB" in table
