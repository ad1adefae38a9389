"""Exercises of notebook 10. All right answers are arithmetic, so none of them needs a language model."""

import math

import numpy as np

from helpers.checks import Correct, exercise
from helpers.llm_quality import kl
from helpers.llm_size import Shape, kv_cache_bytes, weight_bytes


@exercise("10.1", hint="bits / 8 bytes for each weight, and 8 bytes (a scale, a zero point) for each block of 32.")
def size_of_the_weights(answer):
    answer, right = float(answer), weight_bytes(1.5e9, 4, block=32) / 1e9

    def near(value):
        return math.isclose(answer, value, rel_tol=0.005)

    if near(right):
        return Correct("a third of the file is scales and zero points; block 64 halves that third.")
    if near(weight_bytes(1.5e9, 4) / 1e9):
        return "That is the bare integers. Their scales and zero points are missing."
    if near(weight_bytes(1.5e9, 4) / 1e9 + 1.5e9 / 32 * 4 / 1e9):
        return "A scale is there, its zero point is not: 4 bytes each, 8 for a block."
    if near(right * 1e9) or near(right * 8):
        return "The unit: GB are asked for, 1,000,000,000 bytes of 8 bits each."
    if near(right * 1e9 / 2**30):
        return "That is GiB, 1,073,741,824 bytes. Here a GB has 1,000,000,000."
    return f"{answer:g} GB would be {answer * 8 / 1.5:.2f} bits for each weight. 4 bits and what comes with a block?"


@exercise("10.2", hint="2 · layers · key-value heads · numbers per head · bytes of one number, for each token.")
def tokens_that_fit(answer):
    shape = Shape(0, 32, 32, 8, 128, 131_072)
    answer, bytes_free = float(answer), 1_000_000_000
    token = kv_cache_bytes(shape, 1, 2)

    def near(size):
        return abs(answer - bytes_free / size) <= 1

    if near(token):
        if answer != bytes_free // token:
            return "Nearly: a whole number, and the last token has to fit as a whole."
        return Correct("with keys and values for all 32 heads it would be a quarter of that.")
    if near(token * 4):
        return "You counted the query heads. Keys and values are kept for the 8 key-value heads only."
    if near(token / 2):
        return "Keys *and* values: the factor 2 is missing."
    if near(token * 2):
        return "That is for float32, 4 bytes a number. float16 has 2."
    if near(token / 32):
        return "That is the cache of one layer. Each of the 32 keeps its own."
    return f"With {answer:,.0f} tokens one takes {bytes_free / max(answer, 1):,.0f} bytes. Multiply the five factors."


@exercise("10.3", hint="first two log-softmaxes (subtract the largest logit before exp), then the sum.")
def kl_divergence(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = kl), found {type(answer).__name__}."
    a, b = np.random.default_rng(10).normal(0, 3, (2, 50))
    right, found = float(kl(a, b)), float(answer(a.copy(), b.copy()))

    def near(value):
        return math.isclose(found, value, rel_tol=1e-6)

    if near(float(kl(b, a))):
        return "The two are exchanged: p, by which is weighed, belongs to the original."
    if near(right / math.log(2)):
        return "That is in bits (log2). Nats come from the natural logarithm."
    if near(-right):
        return "The sign: log p − log q, not the other way round. KL is never negative."
    if near(float((a * (a - b)).sum())):
        return "Logits are no probabilities yet: softmax first."
    if not near(right):
        return f"For two arrays of 50 logits it returns {found:.4f}; expected {right:.4f}."
    shifted = float(answer(a + 1000, b + 1000))
    if not math.isclose(shifted, right, rel_tol=1e-6):
        return "With 1,000 added to all logits, which changes no probability, it overflows: subtract the largest first."
    return Correct("it is 0 for equal distributions and grows with every probability that is shifted to another token.")


@exercise("10.4", hint="each token needs every weight once; how many bytes are all weights, scales included?")
def most_tokens_per_second(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = most), found {type(answer).__name__}."
    given = 20e9, 3e9, 4, 64
    found, right = float(answer(*given)), given[0] / weight_bytes(*given[1:])

    def near(value):
        return math.isclose(found, value, rel_tol=0.005)

    if near(20e9 / weight_bytes(3e9, 4)):
        return "The scales and zero points come from memory as well: 8 bytes for each block."
    if near(20e9 / (4 * 3e9)):
        return "That is for weights expanded to float32. Here they stay as in the file."
    if near(20e9 / (3e9 * (4 + 64 / 64))):
        return "Bits, not bytes: 8 of them make a byte."
    if near(1 / right):
        return "That is the seconds for one token. Its inverse is asked for."
    if not near(right):
        return f"For 20 GB/s and 3 billion weights (4 bits, block 64) it says {found:.3g}; expected {right:.3g}."
    for place, (name, value) in enumerate((("bandwidth", 50e9), ("parameters", 1e9), ("bits", 8), ("block", 32))):
        other = [*given[:place], value, *given[place + 1 :]]
        if not math.isclose(float(answer(*other)), other[0] / weight_bytes(*other[1:]), rel_tol=0.005):
            return f"With another value of `{name}`, {value:g}, it is wrong: it is an argument, not a constant."
    return Correct("an engine that writes one token at a time cannot be faster; how near it comes has to be measured.")


_AFTER = (4, 6, 7, 2, 9, 0, 5, 8, 0, 3)
"""A model of ten tokens: after token n comes _AFTER[n]. From 3 on: 2, 7, 8, and then 0 for the end."""


@exercise("10.5", hint="in a loop: logits of all ids so far, their argmax, stop at `end` or after `most`, else append.")
def the_loop_of_a_chat(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = greedy), found {type(answer).__name__}."
    try:
        return _loop_verdict(answer)
    except TimeoutError:
        return "After a hundred calls it still goes on, although `most` is far less."


def _loop_verdict(greedy):
    def said(ids, end, most):
        """What the function returns, and what it gave the model, step by step."""
        asked = []

        def next_logits(ids):
            asked.append([int(token) for token in ids])
            if len(asked) > 100:
                raise TimeoutError
            return np.eye(10)[_AFTER[asked[-1][-1]]] * 5

        found = [int(token) for token in greedy(next_logits, ids, end, most)]
        return found, [ids for step, ids in enumerate(asked) if step == 0 or ids != asked[step - 1]]

    given, truth = [1, 3], [2, 7, 8]
    found, steps = said(given, 0, 20)
    if not steps:
        return "It never asks the model, next_logits."
    if given != [1, 3]:
        return "The caller's list has grown: work on a copy."
    if found[:2] == [1, 3]:
        return "The prompt is part of what it returns; only the new tokens are asked for."
    if len(found) > 1 and set(found) == {2}:
        return "It says the same token again and again: what was chosen has to be among the ids of the next step."
    for step, ids in enumerate(steps):
        right = [1, 3, *truth, 0][: 2 + step]
        if ids != right and step <= len(truth):
            return (f"In step {step + 1} the model was given {ids}; expected {right}: it remembers nothing, so give it "
                    "all ids so far.")  # fmt: skip
    if found == [*truth, 0]:
        return "It stops at the end, but the token `end` is not part of the answer."
    if len(found) > len(truth) or len(steps) > len(truth) + 1:
        return f"It goes on after the token `end`: {found}."
    if found != truth:
        return f"After [1, 3] this model says {truth} and then the end; the function returns {found}."
    found, _ = said([1, 3], 8, 20)
    if found != [2, 7]:
        return f"With end=8, after [1, 3], it returns {found}; expected [2, 7]: `end` is an argument."
    found, steps = said([1, 3], 5, 2)  # an end that never comes
    if found != [2, 7]:
        return f"With most=2, after [1, 3], it returns {found}; expected [2, 7]."
    if len(steps) > 3:
        return "With most=2 it asks the model for more tokens than two, and throws them away. A model may never stop."
    return Correct("that is all there is to it; the rest of an engine is making next_logits fast.")
