"""The other side of `llm.ChatModel`: a process with one language model in it, which reads requests and writes answers.

A request is the pickle (number, method of Engine, arguments), an answer the pickle (number, kind, value); number 0 is
loading. kind: "piece" any number of times, then "done" or "error". A request that arrives while another is being
answered ends that one at its next token. The process ends when its stdin does, so it cannot outlive who started it.
"""

import codecs
import functools
import json
import os
import pickle
import queue
import sys
import threading
import time
import traceback

import numpy as np

from .fresh import peak_bytes
from .llm_sampling import probabilities

CHUNK = 512
"""Tokens of a prompt that are read in one go: between two, a request to stop is heard."""


class Engine:
    """MNN-LLM with what it lacks here: bytes of tokens, a cache that is used again as far as it fits, sampling.

    MNN.llm's own `response()` prints its answer, can't be stopped, and starts each turn anew; with `reuse_kv` it goes
    on, but with the template's system prompt once more in every turn. So the loop over tokens is here.
    """

    def __init__(self, inbox, folder, settings):
        import MNN.llm

        self.inbox = inbox
        self.llm = MNN.llm.create(os.path.join(folder, "config.json"))
        # reuse_kv: generate_init() shall leave what has been read.
        self.llm.set_config({**settings, "reuse_kv": True, "all_logits": False})
        self.llm.load()
        self.cached = []
        self.is_end = functools.cache(self.is_end)

    # --- requests ---

    def encode(self, text):
        """Token ids of a text as it stands."""
        return self.llm.tokenizer_encode(text)

    def prompt_ids(self, messages):
        """Token ids of [{"role": …, "content": …}, …] in the model's template, up to where the assistant speaks."""
        return self.llm.tokenizer_encode(self.llm.apply_chat_template(messages))

    def forget(self):
        """Empty the cache."""
        self.llm.reset()
        self.cached = []

    def all_logits(self, ids):
        """float32 [len(ids), vocab]: row i after the tokens ids[: i + 1], from an empty cache."""
        self.forget()
        self.llm.set_config({"all_logits": True})
        try:
            return self.forward(ids)
        finally:
            self.llm.set_config({"all_logits": False})
            self.forget()

    def last_logits(self, ids):
        """float32 [vocab] after the tokens `ids`, from an empty cache."""
        self.forget()
        return self.read(ids)

    def generate(self, ids, room, options, say):
        """Answer the tokens `ids`: say() is called with the text of each token, "" where a character is not complete.

        room: tokens that fit into the window. Returns figures about the answer.
        """
        text = codecs.getincrementaldecoder("utf-8")("replace")
        rng = np.random.default_rng(options["seed"])
        ids, start = list(ids), time.perf_counter()
        figures = {"prompt_tokens": len(ids), "cached_tokens": self.keep(ids), "finish": "stopped"}
        logits = None
        while len(self.cached) < len(ids) and self.inbox.empty():
            logits = self.read(ids[len(self.cached) : len(self.cached) + CHUNK])
        whole = len(self.cached) == len(ids)
        figures["prefill_seconds"] = time.perf_counter() - start
        generated, forwards, start = 0, 0, time.perf_counter()
        while whole and self.inbox.empty():
            if options["do_sample"]:
                token = int(rng.choice(len(logits), p=probabilities(logits, ids, **options)))
            else:
                token = int(probabilities(logits, ids, **options).argmax())
            if self.is_end(token):
                figures["finish"] = "end"
                break
            generated += 1
            ids.append(token)
            say(text.decode(self.bytes_of(token)))
            if generated == min(options["max_new_tokens"], room):
                figures["finish"] = "window" if generated == room else "length"
                break
            logits = self.read([token], decode=True)
            forwards += 1
        figures["decode_seconds"] = time.perf_counter() - start
        say(text.decode(b"", final=True))
        return {**figures, "generated_tokens": generated, "forwards": forwards, "peak_bytes": peak_bytes()}

    # --- what they are made of ---

    def keep(self, ids):
        """Drop from the cache what differs from `ids`, and their last, whose logits are needed; counts what is left."""
        common = 0
        for old, new in zip(self.cached, ids[:-1], strict=False):
            if old != new:
                break
            common += 1
        if common < len(self.cached):
            self.llm._c_obj.erase_history(common, 0)
        self.cached = ids[:common]
        return common

    def read(self, ids, decode=False):
        """Append tokens to the cache; float32 [vocab] after the last."""
        logits = self.forward(ids, decode)[-1]
        self.cached += ids
        return logits

    def forward(self, ids, decode=False):
        if not decode:
            self.llm.generate_init()  # else the engine takes it for a step of an answer, and copies itself for its size
        logits = np.array(self.llm.forward(ids).read())
        if logits.ndim != 3 or not logits.size:
            raise RuntimeError(f"MNN-LLM gave no logits for {len(ids)} tokens: its output has shape {logits.shape}.")
        return logits[0].astype(np.float32, copy=False)

    def is_end(self, token):
        self.llm.context.current_token = token
        return self.llm.stoped()

    def bytes_of(self, token):
        """UTF-8 of a token, which may be half a character."""
        try:
            return self.llm.tokenizer_decode(token).encode()
        except UnicodeDecodeError as error:
            return error.object


def serve(requests, answers, folder, settings):
    """Load the model in `folder` and answer requests until there are no more."""
    inbox = queue.SimpleQueue()

    def send(*answer):
        answers.write(pickle.dumps(answer))
        answers.flush()

    def answer(number, work):
        try:
            send(number, "done", work())
        except Exception as error:
            send(number, "error", error)

    def load():
        nonlocal engine
        start = time.perf_counter()
        engine = Engine(inbox, folder, settings)
        return time.perf_counter() - start

    engine = None
    threading.Thread(target=_listen, args=(requests, inbox), daemon=True).start()
    answer(0, load)
    while True:
        number, name, arguments = inbox.get()
        if name == "generate":
            arguments = (*arguments, functools.partial(send, number, "piece"))
        if name != "stop":  # whose arrival was all it is about
            answer(number, functools.partial(getattr(engine, name), *arguments))


def _listen(requests, inbox):
    try:
        while True:
            inbox.put(pickle.load(requests))
    except EOFError:
        os._exit(0)  # not sys.exit(): MNN's objects, taken apart in Python's order, crash
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(folder, settings):
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what MNN prints goes to the log
    serve(sys.stdin.buffer, answers, folder, json.loads(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
