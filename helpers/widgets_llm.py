"""What notebook 10 plays with: a chat that can be stopped, the arithmetic of fitting, and the knobs of quantization.

Each carries a static text for readers without a running kernel.
"""

import contextlib
import html
import threading
import time

import ipywidgets

from . import plots
from .llm_quality import perplexity
from .llm_size import Shape, kv_cache_bytes, weight_bytes
from .widgets import red

REDRAW = 0.1
"""Seconds between two drawings of an answer that is being written: more often than one can read costs only time."""

LAST_LETTERS = 0.2
"""Seconds to wait after Enter: a browser that waits for the kernel sends what was typed last after that key."""


class ChatBox(ipywidgets.VBox):
    """A conversation with a ChatModel: Enter or Send asks, Stop ends the answer, Clear begins anew.

    chat: a `ChatModel`, whose conversation goes on here. example: [(question, answer), …] for readers without a kernel,
    and to be seen until the first question. sampling: as for `ChatModel.stream`.

    The answer is written by a thread of its own, so the kernel runs other cells meanwhile. What goes wrong is shown in
    red and kept in `error`; the box goes on.
    """

    def __init__(self, chat, *, example=(), **sampling):
        self.chat, self.example, self.sampling = chat, list(example), sampling
        self.error = None
        self.thread = None
        self.stopping = threading.Event()
        self.turns = []
        self.conversation = ipywidgets.HTML()
        self.question = ipywidgets.Text(placeholder="Ask something, then press Enter", layout={"width": "70%"})
        self.send_button, self.stop_button, self.clear_button = (
            ipywidgets.Button(description=words, layout={"width": "5em"}) for words in ("Send", "Stop", "Clear")
        )
        self.status = ipywidgets.HTML()
        row = ipywidgets.HBox([self.question, self.send_button, self.stop_button, self.clear_button])
        super().__init__([self.conversation, row, self.status], layout={"max_width": "52em"})
        self.question.on_msg(lambda _widget, content, _buffers: content.get("event") == "submit" and self._asked())
        self.send_button.on_click(lambda _button: self._asked())
        self.stop_button.on_click(lambda _button: self.interrupt())
        self.clear_button.on_click(lambda _button: self.start_again())
        self._ready()
        self._draw()

    def ask(self, question):
        """Ask as if it had been typed; returns the thread that writes the answer. RuntimeError while one is written."""
        if self.thread is not None and self.thread.is_alive():
            raise RuntimeError("An answer is still being written. Press Stop first.")
        self.stopping.clear()
        self.thread = threading.Thread(target=self._answer, args=(question,), daemon=True)
        self.send_button.disabled, self.stop_button.disabled = True, False
        self.thread.start()
        return self.thread

    def interrupt(self):
        """End the answer that is being written at its next token; what was written stays."""
        self.stopping.set()
        self.chat.stop()  # which also ends the reading of a long question

    def start_again(self):
        """End the answer that is being written, if any, and forget the conversation."""
        self.interrupt()
        if self.thread is not None:
            self.thread.join()
        self.chat.reset()
        self.turns, self.error = [], None
        self.status.value = ""
        self._draw()

    def _asked(self):
        if not self.send_button.disabled:
            self.ask(None)

    def _answer(self, question):
        if question is None:
            time.sleep(LAST_LETTERS)
            question = self.question.value
            self.question.value = ""
        if question.strip():
            self._write(question)
        self._ready()

    def _write(self, question):
        self.error = None
        turn = [question, ""]
        self.turns.append(turn)
        self._draw()
        self.status.value = "reading …"
        tokens, drawn, start = 0, time.perf_counter(), None
        try:
            with contextlib.closing(self.chat.stream(question, **self.sampling)) as pieces:
                for piece in pieces:
                    now = time.perf_counter()
                    start = start or now
                    turn[1] += piece
                    tokens += 1
                    if now - drawn > REDRAW:
                        drawn = now
                        self.status.value = f"about {tokens / max(now - start, REDRAW):.0f} tokens/s …"
                        self._draw()
                    if self.stopping.is_set():
                        break
            self.status.value = html.escape(str(self.chat.reply.stats))
        except Exception as error:
            # An exception in a thread would end in a log that no learner reads.
            self.error = error
            self.turns.pop()  # it is not part of the conversation either
            self.question.value = question
            self.status.value = red(error)
        self._draw()

    def _ready(self):
        self.send_button.disabled, self.stop_button.disabled = False, True

    def _draw(self):
        self.conversation.value = _transcript(self.turns or self.example, example=not self.turns)

    def _repr_mimebundle_(self, **kwargs):
        return _bundle(
            super()._repr_mimebundle_(**kwargs), "A chat with the model, in a running notebook.",
            _transcript(self.example, example=True),
        )  # fmt: skip


def _transcript(turns, *, example=False):
    """Questions to the right, answers to the left, all that is in them as text."""
    if not turns:
        return ""
    lines = "".join(
        f'<div class="mnn-asked"><span>{html.escape(question)}</span></div>'
        f'<div class="mnn-said"><span>{html.escape(answer) or "…"}</span></div>'
        for question, answer in turns
    )
    title = '<div class="mnn-title">an example</div>' if example else ""
    # Upside down, so that it is scrolled to its end, also when it is drawn anew.
    return f'{_STYLE}<div class="mnn-chat" role="log"><div>{title}{lines}</div></div>'


_STYLE = f"""<style>
.mnn-chat {{ line-height: 1.4; max-height: 24em; overflow-y: auto; display: flex; flex-direction: column-reverse }}
.mnn-chat div {{ margin: 6px 0 }}
.mnn-chat span {{ display: inline-block; padding: 6px 10px; border-radius: 8px; white-space: pre-wrap; max-width: 80%;
  text-align: left; overflow-wrap: anywhere }}
.mnn-asked {{ text-align: right }}
.mnn-asked span {{ background: {plots.BLUE}; color: #fff }}
.mnn-said span {{ background: rgba(128, 128, 128, .18) }}
.mnn-title {{ font-size: 11px; opacity: .7 }}
.mnn-fit {{ line-height: 1.4 }}
.mnn-fit td, .mnn-fit th {{ text-align: right; padding: 2px 12px 2px 0; font-variant-numeric: tabular-nums }}
.mnn-fit td:first-child {{ text-align: left }}
</style>"""


MODELS = {
    "SmolLM2-135M": Shape(134_515_008, 30, 9, 3, 64, 8192),
    "Qwen2.5-0.5B": Shape(494_032_768, 24, 14, 2, 64, 32768),
    "Llama-3.2-1B": Shape(1_235_814_400, 16, 32, 8, 64, 131072),
    "Llama-2-7B": Shape(6_738_415_616, 32, 32, 32, 128, 4096),
    "Llama-3.1-8B": Shape(8_030_261_248, 32, 32, 8, 128, 131072),
}
"""From the config.json of each; enough to see what grouped-query attention saves (Llama 2 has none)."""


class FitCalculator(ipywidgets.VBox):
    """What a model of a given shape takes: weights and key-value cache, in GB (1,000,000,000 bytes).

    models: {name: Shape} to start from; the first is shown. Every figure can be changed.
    """

    def __init__(self, models=None):
        self.models = dict(models or MODELS)
        self.model = ipywidgets.Dropdown(options=list(self.models), description="start from", **_WIDE)

        def number(words, **limits):
            kind = ipywidgets.BoundedIntText if "step" not in limits else ipywidgets.BoundedFloatText
            return kind(description=words, **limits, **_WIDE)

        self.billions = number("parameters, billions", min=0, max=10_000, step=0.1)
        self.bits = ipywidgets.Dropdown(options=[32, 16, 8, 4], value=4, description="bits per weight", **_WIDE)
        self.block = ipywidgets.Dropdown(
            options=[("none", None), 32, 64, 128], value=64, description="weights per scale", **_WIDE
        )
        self.layers = number("layers", min=1, max=1000)
        self.kv_heads = number("key-value heads", min=1, max=1000)
        self.head_dim = number("numbers per head", min=1, max=4096)
        self.tokens = number("context, tokens", min=0, max=10_000_000)
        self.kv_bytes = ipywidgets.Dropdown(
            options=[("float32", 4), ("float16", 2), ("int8", 1)], value=4, description="cache stored as", **_WIDE
        )
        self.answer = ipywidgets.HTML()
        fields = (self.billions, self.bits, self.block, self.layers, self.kv_heads, self.head_dim, self.tokens,
                  self.kv_bytes)  # fmt: skip
        columns = ipywidgets.HBox([ipywidgets.VBox([self.model, *fields[:3]]), ipywidgets.VBox(fields[3:])])
        super().__init__([columns, self.answer])
        self._start_from(self.models[self.model.value])
        self.model.observe(lambda change: self._start_from(self.models[change["new"]]), names="value")
        for field in fields:
            field.observe(lambda _change: self._update(), names="value")
        self._update()

    def sizes(self):
        """Bytes as (weights, key-value cache)."""
        shape = Shape(0, self.layers.value, 0, self.kv_heads.value, self.head_dim.value, 0)
        block = self.block.value if self.bits.value < 16 else None
        return (
            weight_bytes(self.billions.value * 1e9, self.bits.value, block),
            kv_cache_bytes(shape, self.tokens.value, self.kv_bytes.value),
        )

    def _start_from(self, shape):
        self.billions.value = shape.parameters / 1e9
        self.layers.value, self.kv_heads.value, self.head_dim.value = shape.layers, shape.kv_heads, shape.head_dim
        self.tokens.value = min(shape.context, 4096)

    def _update(self):
        weights, cache = self.sizes()
        self.answer.value = _STYLE + _html_table(
            ("", "GB"),
            [("weights", f"{weights / 1e9:.3f}"), (f"cache for {self.tokens.value:,} tokens", f"{cache / 1e9:.3f}"),
             ("together", f"{(weights + cache) / 1e9:.3f}")],
        )  # fmt: skip

    def _repr_mimebundle_(self, **kwargs):
        rows = []
        for name, shape in self.models.items():
            stored = ((32, None), (16, None), (8, 64), (4, 64))
            weights = (f"{weight_bytes(shape.parameters, bits, block) / 1e9:.2f}" for bits, block in stored)
            rows.append((name, *weights, f"{kv_cache_bytes(shape, 4096) / 1e9:.2f}"))
        header = ("GB", "32 bits", "16 bits", "8 bits, block 64", "4 bits, block 64", "cache, 4,096 tokens in float32")
        alt = "A calculator of a model's memory, in a running notebook."
        return _bundle(super()._repr_mimebundle_(**kwargs), alt, _STYLE + _html_table(header, rows))


_WIDE = {"style": {"description_width": "11em"}, "layout": {"width": "22em"}}


class QualityKnobs(ipywidgets.VBox):
    """Choose bits and arithmetic, guess, and compare with what was measured.

    original: `llm_quality.Original`; rows: a list of `llm_quality.Quality`.
    """

    def __init__(self, original, rows):
        self.original, self.rows = original, {row.name: row for row in rows}
        count = len(original.prompts)
        self.choice = ipywidgets.ToggleButtons(options=list(self.rows), description="", style={"button_width": "16em"})
        self.guess = ipywidgets.IntSlider(
            min=0, max=count, value=count, description=f"your guess: same first token, of {count} prompts",
            style={"description_width": "22em"}, layout={"width": "40em"},
        )  # fmt: skip
        self.show_button = ipywidgets.Button(description="Compare")
        self.answer = ipywidgets.HTML()
        super().__init__([self.choice, self.guess, self.show_button, self.answer])
        self.choice.observe(lambda _change: setattr(self.answer, "value", ""), names="value")
        self.show_button.on_click(lambda _button: self._show_measured())

    def _show_measured(self):
        row, count = self.rows[self.choice.value], len(self.original.prompts)
        same = round(row.top1 * count)
        off = abs(same - self.guess.value)
        verdict = "Right." if off == 0 else f"{off} off."
        self.answer.value = f"<div>{verdict}</div>{_STYLE}{_html_table(*_quality_table(self.original, [row]))}"

    def _repr_mimebundle_(self, **kwargs):
        return _bundle(
            super()._repr_mimebundle_(**kwargs), "Knobs for bits and arithmetic, in a running notebook.",
            _STYLE + _html_table(*_quality_table(self.original, self.rows.values())),
        )  # fmt: skip


def _quality_table(original, rows):
    count, best = len(original.prompts), perplexity(original.text_logits, original.text_ids)
    header = ("", "same first token", "KL (nats)", f"perplexity (original {best:.2f})", "file", "peak memory", "writes")
    return header, [
        (row.name, f"{round(row.top1 * count)} of {count}", f"{row.kl:.5f}", f"{row.perplexity:.2f}",
         f"{row.bytes / 1e6:.0f} MB", f"{row.peak_bytes / 1e6:.0f} MB", f"{row.decode_speed:.0f} tokens/s")
        for row in rows
    ]  # fmt: skip


def _html_table(header, rows):
    def line(cells, tag):
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return f'<table class="mnn-fit">{line(header, "th")}{"".join(line(row, "td") for row in rows)}</table>'


def _bundle(bundle, alt, static):
    """A widget's mimebundle with a readable text/plain and, for readers without a kernel, a text/html."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return {**data, "text/plain": alt, **({"text/html": static} if static else {})}, metadata
