"""From logits to the next token, with the options and the rules of Hugging Face's transformers."""

import numpy as np

TOP_K = 50
"""transformers' own default, once do_sample is on."""


def options(*, max_new_tokens=128, do_sample=False, temperature=None, top_k=None, top_p=None, repetition_penalty=1.0,
            seed=None):  # fmt: skip
    """The options of an answer, checked, as a dict; names and meanings as in transformers' `generate`.

    max_new_tokens: at least 1. do_sample: False takes the most likely token each time (greedy), True draws one.
    temperature (default 1.0): > 0, below 1 sharpens. top_k (50): only the k most likely stay, 0 for all. top_p (1.0):
    only the fewest that together have this probability stay. repetition_penalty (1.0: none): > 0. seed: an int makes
    the draw repeatable on this machine.

    Raises ValueError for a value out of range, and for temperature, top_k, top_p or seed without do_sample=True, where
    they would do nothing.
    """
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    given = [name for name, value in drawing.items() if value is not None]
    if given and not do_sample:
        raise ValueError(f"{', '.join(given)} only matter where tokens are drawn: pass do_sample=True as well.")
    found = {
        "max_new_tokens": max_new_tokens, "do_sample": bool(do_sample), "repetition_penalty": repetition_penalty,
        "temperature": 1.0 if temperature is None else temperature, "top_k": TOP_K if top_k is None else top_k,
        "top_p": 1.0 if top_p is None else top_p, "seed": seed,
    }  # fmt: skip
    for name, ok, rule in (
        ("max_new_tokens", max_new_tokens >= 1, "at least 1"),
        ("temperature", found["temperature"] > 0, "more than 0 (do_sample=False is what temperature 0 would mean)"),
        ("top_k", found["top_k"] >= 0, "0 or more"),
        ("top_p", 0 < found["top_p"] <= 1, "more than 0 and at most 1"),
        ("repetition_penalty", repetition_penalty > 0, "more than 0"),
    ):
        if not ok:
            raise ValueError(f"{name} is {found[name]!r}; expected {rule}.")
    return found


def probabilities(logits, ids, *, do_sample, temperature, top_k, top_p, repetition_penalty, **_):
    """Probability of each token to be the next: float64 [vocab].

    logits: float [vocab] after the tokens `ids`, the prompt's and the answer's so far. In transformers' order: the
    penalty (Keskar et al. 2019, https://arxiv.org/abs/1909.05858: logits of tokens that occurred are divided by it when
    positive, multiplied when negative), temperature, top_k, top_p (Holtzman et al. 2019,
    https://arxiv.org/abs/1904.09751). Without do_sample the most likely token has probability 1.
    """
    scores = np.array(logits, dtype=np.float64)
    if repetition_penalty != 1:
        seen = np.unique(ids)
        scores[seen] = np.where(scores[seen] < 0, scores[seen] * repetition_penalty, scores[seen] / repetition_penalty)
    if not do_sample:
        return (np.arange(len(scores)) == scores.argmax()).astype(float)
    scores /= temperature
    if 0 < top_k < len(scores):
        scores[scores < np.partition(scores, -top_k)[-top_k]] = -np.inf
    powers = np.exp(log_softmax(scores))
    if top_p < 1:
        order = powers.argsort()[::-1]
        before = powers[order].cumsum() - powers[order]  # what the more likely ones have together
        powers[order[before >= top_p]] = 0
    return powers / powers.sum()


def log_softmax(logits):
    """log(exp(x) / Σ exp(x)) over the last axis, float64."""
    logits = np.asarray(logits, dtype=np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
