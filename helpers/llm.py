"""Talk to a language model on MNN, in a process of its own.

    chat = ChatModel(folder)                       # what helpers.llm_export.export() made
    reply = chat("What is the capital of France?") # a str, with .stats
    for piece in chat.stream("And of Germany?"):   # the same, while it is being written
        print(piece, end="")

MNN-LLM runs in a child process: it may crash or be killed, and two models may be open, without the kernel noticing.
"""

import contextlib
import itertools
import json
import math
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from .llm_sampling import options
from .native import Finished, NativeError, child_environment, last_lines
from .paths import short

FILES = ("config.json", "llm_config.json", "llm.mnn", "llm.mnn.weight", "checkpoint.json")
WINDOW = 2048


class ContextWindowError(ValueError):
    """A conversation has more tokens than the window. `tokens`: it needs, `window`: there are."""

    def __init__(self, message, tokens, window):
        super().__init__(message)
        self.tokens, self.window = tokens, window


@dataclass(frozen=True)
class Stats:
    """Figures of one answer.

    prompt_tokens: of the whole conversation with its template; cached_tokens: those of them that the engine had read in
    an earlier turn. prefill_seconds: reading the others. first_token: seconds from the call to the first token here.
    generated_tokens: without the one that ends the answer. decode_seconds: for the tokens after the first, that one
    included. finish: "end" (the model ended it), "length" (max_new_tokens), "window" (no room left) or "stopped".
    peak_bytes: the most memory that the child process has held so far, loading included.
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    prefill_seconds: float
    decode_seconds: float
    first_token: float
    forwards: int
    finish: str
    peak_bytes: int

    @property
    def prefill_speed(self):
        """Tokens read per second."""
        return (self.prompt_tokens - self.cached_tokens) / self.prefill_seconds

    @property
    def decode_speed(self):
        """Tokens written per second, NaN where there was only one."""
        return self.forwards / self.decode_seconds if self.forwards else math.nan

    def __str__(self):
        cached = f" ({self.cached_tokens:,} of them cached)" if self.cached_tokens else ""
        return (
            f"{self.prompt_tokens:,} tokens in{cached}, read at {self.prefill_speed:.0f} tokens/s; first token after "
            f"{self.first_token:.2f} s; {self.generated_tokens:,} tokens out at {self.decode_speed:.1f} tokens/s "
            f"(finish: {self.finish}); peak memory {self.peak_bytes / 1e6:.0f} MB"
        )


class Reply(str):
    """An answer: a str with `stats`, a `Stats`."""

    def __new__(cls, text, stats):
        reply = super().__new__(cls, text)
        reply.stats = stats
        return reply

    def __getnewargs__(self):  # for pickle and copy
        return str(self), self.stats


class ChatModel:
    """A language model to talk to; the turns of a conversation stay in its context until `reset()`.

    folder: as llm_export.export() makes it; nothing in it is changed. memory: "high" computes with activations in
    float32, "low" rounds them to int8 before each matrix product. activation_scales (MNN's `dynamic_option`) says how
    finely: 0, MNN's default, one scale for a whole row; 2, one for each block of it. threads: of the child. system:
    replaces the system prompt that the model's template brings, "" for an empty one. window: the most tokens that a
    conversation may have, answer included; the smaller of 2,048 and what the model was trained for, unless given.
    MNN-LLM itself knows no limit: beyond the training it goes on and writes nonsense. timeout: seconds for loading and
    for each answer.

    Loads at once, 1 to 3 s for 135 million parameters (`load_seconds`). Raises FileNotFoundError when the folder is not
    whole, ValueError for other values, and what every request may raise: NativeError when the child crashes, is killed
    or takes too long, with the signal and its last words. The next request then starts a new child, which reads the
    conversation so far again; the question that failed is not in it.

    The child ends with close(), at the end of a `with` block, when nobody refers to the ChatModel any more, and with
    the kernel, whatever ends that.
    """

    def __init__(self, folder, *, memory="high", threads=2, system=None, window=None, timeout=120, activation_scales=0):
        self.folder = Path(folder)
        missing = [name for name in FILES if not (self.folder / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{short(self.folder)} is no folder for MNN-LLM: {', '.join(missing)} missing. "
                f"llm_export.export() makes one."
            )
        for name, value, allowed in (
            ("memory", memory, ("high", "low")), ("activation_scales", activation_scales, (0, 1, 2)),
        ):  # fmt: skip
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}.")
        checkpoint = json.loads((self.folder / "checkpoint.json").read_text(encoding="utf-8"))
        self.trained_for = checkpoint["max_position_embeddings"]
        if window is not None and not 1 <= window <= self.trained_for:
            raise ValueError(f"window is {window:,} tokens; this model was trained for 1 to {self.trained_for:,}.")
        self.window = window or min(WINDOW, self.trained_for)
        self.memory, self.system, self.timeout = memory, system, timeout
        self._settings = {
            "memory": memory, "thread_num": threads, "precision": "high", "dynamic_option": activation_scales,
        }  # fmt: skip
        self.reply = None
        self.messages = self._opening()
        self._turn = self._stopped = 0
        self._closed = False
        self._child = None
        self._living()

    # --- talking ---

    def __call__(self, prompt, **sampling):
        """The whole answer to a prompt, a `Reply`. Keywords: see llm_sampling.options. Raises what `stream` raises."""
        for _piece in self.stream(prompt, **sampling):
            pass
        return self.reply

    def stream(self, prompt, **sampling):
        """Yield the answer piece by piece; afterwards `reply` is the whole, a `Reply`.

        Pieces are never empty and hold whole characters. Leaving the loop, or stop() from another thread, ends the
        answer at its next token; what was said stays in the conversation. A new request ends an unfinished answer too,
        and then nothing of that one stays.

        Raises ContextWindowError before the model is asked, when no token of an answer would fit into the window;
        ValueError for a wrong option, NativeError (see the class), RuntimeError after close().
        """
        return self._stream(_text(prompt), options(**sampling))

    def _stream(self, prompt, chosen):
        conversation, question = self.messages, {"role": "user", "content": prompt}
        self._turn += 1
        turn, start = self._turn, time.perf_counter()
        ids = self._checked(self._ask("prompt_ids", [*conversation, question]), 1)
        request = self._request("generate", ids, self.window - len(ids), chosen)
        if self._stopped == turn:
            request.stop()
        pieces, first, figures = [], math.nan, None
        try:
            for piece in request.pieces():
                first = first if pieces else time.perf_counter() - start
                pieces.append(piece)
                if piece:
                    yield piece
            figures = request.value
        except (GeneratorExit, KeyboardInterrupt):  # the loop was left, or the cell interrupted
            request.stop()
            with contextlib.suppress(NativeError):  # the model may have been closed meanwhile
                figures = request.result()
            raise
        finally:
            if figures and self._turn == turn:
                self.reply = Reply("".join(pieces), Stats(first_token=first, **figures))
                # Not self.messages: after a reset() meanwhile that is another list.
                conversation += [question, {"role": "assistant", "content": str(self.reply)}]

    def stop(self):
        """End the answer that is being written, if any, at its next token. For other threads than the reading one."""
        self._stopped = self._turn
        if self._child is not None:
            self._child.send(0, "stop")

    def reset(self):
        """Forget the conversation, the system prompt excepted."""
        self.messages = self._opening()
        if self._child is not None:
            self._child.send(0, "forget")

    def _opening(self):
        return [] if self.system is None else [{"role": "system", "content": _text(self.system)}]

    # --- looking inside ---

    def encode(self, text):
        """Token ids of a text as it stands, a list of int, by MNN's own tokenizer."""
        return self._ask("encode", _text(text))

    def prompt_ids(self, prompt):
        """Token ids of a first question in the model's template, system prompt included, up to where it answers."""
        return self._ask("prompt_ids", [*self._opening(), {"role": "user", "content": _text(prompt)}])

    def logits(self, prompt):
        """Logits of the first token of the answer to a first question: float32 [vocab]. The conversation stays."""
        return self._ask("last_logits", self._checked(self.prompt_ids(prompt), 0))

    def all_logits(self, ids):
        """Logits after each of the tokens: float32 [len(ids), vocab], row i after ids[: i + 1]. The conversation stays.

        That is teacher forcing: row i is judged by ids[i + 1], whatever it would have said itself.
        """
        return self._ask("all_logits", self._checked(list(map(int, ids)), 0))

    @property
    def pid(self):
        """Process number of the child."""
        return self._living().process.pid

    # --- the child ---

    def close(self):
        """End the child. A second time does nothing."""
        self._closed = True
        if self._child is not None:
            self._child.finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"ChatModel({short(self.folder)}, memory={self.memory!r}, window={self.window:,})"

    def _checked(self, ids, room):
        """`ids`, when they and `room` more fit into the window."""
        if len(ids) + room > self.window:
            earlier = sum(message["role"] == "assistant" for message in self.messages)
            remedy = f"forget the {earlier} turns before with reset(), " if earlier else ""
            raise ContextWindowError(
                f"This takes {len(ids) + room:,} tokens, template, conversation and at least one to answer included; "
                f"the window is {self.window:,}. Shorten the question, {remedy}or open the model with a larger window; "
                f"it was trained for {self.trained_for:,}.",
                len(ids) + room, self.window,
            )  # fmt: skip
        return ids

    def _living(self):
        if self._closed:
            raise RuntimeError(f"{self!r} is closed. Open another one.")
        if self._child is None or self._child.failed:
            self._child = _Child(self.folder, self._settings)
            # Not a method of the child: that would keep the child alive.
            self._child.finalizer = weakref.finalize(self, _end, self._child.process, self._child.log)
            self.load_seconds = _Request(self._child, 0, "loading the model", self.timeout).result()
        return self._child

    def _request(self, name, *arguments):
        return self._living().ask(name, arguments, self.timeout)

    def _ask(self, name, *arguments):
        return self._request(name, *arguments).result()


def _text(text):
    if not isinstance(text, str):
        raise TypeError(f"Expected a text, found {type(text).__name__}.")
    if "\0" in text:
        raise ValueError("The text has a NUL character in it, at which MNN would cut it off. Take it out.")
    text.encode()  # raises UnicodeEncodeError for half a surrogate pair
    return text


class _Child:
    """A process of helpers.llm_child, and who waits for which of its answers."""

    def __init__(self, folder, settings):
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by _end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.llm_child", str(folder), json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=child_environment(),
            start_new_session=os.name == "posix",  # so that interrupting a cell does not interrupt the child
        )  # fmt: skip
        self.failed = False
        self.numbers = itertools.count(1)
        self.waiting = {0: queue.SimpleQueue()}
        self.sending = threading.Lock()
        threading.Thread(target=_deliver, args=(self.process.stdout, self.waiting), daemon=True).start()

    def ask(self, name, arguments, seconds):
        number = next(self.numbers)
        self.waiting[number] = queue.SimpleQueue()
        self.send(number, name, *arguments)
        return _Request(self, number, name.replace("_", " "), seconds)

    def send(self, number, name, *arguments):
        with self.sending:
            try:
                self.process.stdin.write(pickle.dumps((number, name, arguments)))
                self.process.stdin.flush()
            except (OSError, ValueError):  # it has ended, or was closed: whoever waits for an answer is told
                if number in self.waiting:
                    self.waiting[number].put(("ended", None))

    def read_log(self):
        if self.log.closed:
            return ""
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


class _Request:
    """What a child answers to one request. name: of the request, in words; seconds: for all of it."""

    def __init__(self, child, number, name, seconds):
        self.child, self.number, self.name, self.seconds = child, number, name, seconds
        self.deadline = time.monotonic() + seconds
        self.answers = child.waiting[number]
        self.value = None

    def pieces(self):
        """Yield the pieces of the answer; `value` is its end. Raises NativeError, and what the child raised."""
        while True:
            try:
                kind, value = self.answers.get(timeout=max(0, self.deadline - time.monotonic()))
            except queue.Empty:
                kind = "late"
            if kind != "piece":
                break
            yield value
        if kind in ("ended", "late"):
            raise self.failure(kind)
        del self.child.waiting[self.number]
        if kind == "error":
            raise value
        self.value = value

    def result(self):
        """`value`, whatever pieces come before it."""
        for _piece in self.pieces():
            pass
        return self.value

    def stop(self):
        self.child.send(self.number, "stop")

    def failure(self, kind):
        self.child.failed = True
        if kind == "late":
            self.child.process.kill()
            what = f"was stopped after {self.seconds:g} s ({self.name}). ChatModel(…, timeout=) gives it more"
        self.child.process.wait()
        log, returncode = self.child.read_log(), None
        if kind == "ended":
            returncode = self.child.process.returncode
            what = f"ended in the middle of its work ({self.name}): {Finished(returncode, '', 0).ending}"
        return NativeError(
            f"The model's process {what}. The next question starts a new one. "
            f"Its last words:\n{last_lines(log) or '(none)'}",
            returncode, log,
        )  # fmt: skip


def _deliver(answers, waiting):
    """Put what a child says where it is waited for, until the child has ended."""
    try:
        while True:
            number, kind, value = pickle.load(answers)
            if number in waiting:
                waiting[number].put((kind, value))
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        for expecting in list(waiting.values()):
            expecting.put(("ended", None))


def _end(process, log):
    """End a child: it goes by itself when its stdin is closed, if it is not in the middle of something."""
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    log.close()
