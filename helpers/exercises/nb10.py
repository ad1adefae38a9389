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
    if not math.isclose(float(answer(50e9, 1e9, 8, 32)), 50e9 / weight_bytes(1e9, 8, 32), rel_tol=0.005):
        return "Right for 4 bits and block 64, wrong for 8 bits and block 32: bits and block are arguments."
    return Correct("an engine that writes one token at a time cannot be faster; how near it comes has to be measured.")


def _next_logits(ids):
    """A model of ten tokens that counts: after n comes n + 1, after 7 the end, 0. Logits [10]."""
    logits = np.zeros(10)
    logits[(ids[-1] + 1) % 8] = 5.0
    return logits


@exercise("10.5", hint="in a loop: logits of all ids so far, their argmax, stop at `end` or after `most`, else append.")
def the_loop_of_a_chat(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = greedy), found {type(answer).__name__}."
    asked = []

    def next_logits(ids):
        asked.append([int(token) for token in ids])
        if len(asked) > 100:
            raise TimeoutError
        return _next_logits(asked[-1])

    given = [9, 2]
    try:
        found = [int(token) for token in answer(next_logits, given, 0, 20)]
    except TimeoutError:
        return "After a hundred calls it still goes on, although `most` is 20 and the end came long before."
    if given != [9, 2]:
        return "The caller's list has grown: work on a copy."
    if found[:2] == [9, 2]:
        return "The prompt is part of what it returns; only the new tokens are asked for."
    if len(found) > 1 and set(found) == {3}:
        return "It says the same token again and again: what was chosen has to be among the ids of the next step."
    for step, ids in enumerate(asked):
        if ids != [9, 2, *found[:step]]:
            return (f"In step {step + 1} the model was given {ids}; expected {[9, 2, *found[:step]]}: it remembers "
                    "nothing, so give it all ids so far.")  # fmt: skip
    if found == [3, 4, 5, 6, 7, 0]:
        return "It stops at the end, but the token `end` is not part of the answer."
    if len(found) > 6:
        return f"It goes on after the token `end`: {found}."
    if found != [3, 4, 5, 6, 7]:
        return f"For a model that counts, after [9, 2] it says {found}; expected [3, 4, 5, 6, 7]."
    asked.clear()
    if (stopped := [int(token) for token in answer(next_logits, [1], 5, 20)]) != [2, 3, 4]:
        return f"With end=5, after [1], it says {stopped}; expected [2, 3, 4]: `end` is an argument."
    asked.clear()
    if len(short := list(answer(next_logits, [1], 0, 3))) != 3:
        return f"With most=3 it returns {len(short)} tokens."
    return Correct("that is all there is to it; the rest of an engine is making next_logits fast.")
