"""How far apart are two answers to the same question? Numbers about two arrays of one shape."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Parity:
    """Distance between a reference and a candidate output of the same shape.

    max_abs, mean_abs are in the outputs' own unit (logits here); max_rel is max |c - r| / max(|r|, 1e-12); cosine is
    over the flattened arrays; top1_agreement is the share of rows (axis 0) with the same argmax over the last axis.
    Where both are NaN or the same infinity they count as equal; where only one is, max_abs is infinite.
    """

    max_abs: float
    mean_abs: float
    max_rel: float
    cosine: float
    top1_agreement: float
    ok: bool

    def __str__(self):
        verdict = "agrees" if self.ok else "DIFFERS"
        return f"{verdict}: max abs {self.max_abs:.1e}, cosine {self.cosine:.6f}, top-1 {self.top1_agreement:.2%}"

    def table(self):
        """The same figures, one a line."""
        return "\n".join(f"{field.name:<15} {getattr(self, field.name):.6g}" for field in fields(self))


def compare(reference, candidate, *, atol=1e-4, rtol=1e-3):
    """Compare two outputs element by element.

    reference, candidate: numeric arrays of equal shape, [N, ...]. Agreement means |c - r| <= atol + rtol * |r|
    everywhere, with NaN in the same places (numpy.allclose's rule). Raises ValueError when the shapes differ or the
    arrays are empty, naming both.
    """
    reference, candidate = np.asarray(reference), np.asarray(candidate)
    if reference.shape != candidate.shape or reference.size == 0:
        raise ValueError(
            f"compare() needs two arrays of the same shape with at least one element; found {list(reference.shape)} "
            f"and {list(candidate.shape)}."
        )
    r, c = (array.astype(np.float64).reshape(-1) for array in (reference, candidate))
    same = (r == c) | (np.isnan(r) & np.isnan(c))
    usable = np.isfinite(r) & np.isfinite(c)
    difference = np.where(same, 0.0, np.inf)
    np.subtract(c, r, out=difference, where=usable & ~same)
    difference = np.abs(difference)
    return Parity(
        max_abs=float(difference.max()),
        mean_abs=float(difference.mean()),
        max_rel=float((difference / np.maximum(np.abs(np.where(usable, r, 1.0)), 1e-12)).max()),
        cosine=_cosine(r[usable], c[usable]),
        top1_agreement=_top1_agreement(reference, candidate),
        ok=bool(np.allclose(c, r, rtol=rtol, atol=atol, equal_nan=True)),
    )


def _cosine(r, c):
    norms = np.linalg.norm(r) * np.linalg.norm(c)
    if norms == 0:
        return 1.0 if np.array_equal(r, c) else 0.0
    return float(np.clip(np.dot(r, c) / norms, -1, 1))


def _top1_agreement(reference, candidate):
    rows = [np.atleast_1d(array).reshape(array.shape[:1] + (-1,) + array.shape[-1:] if array.ndim > 1 else (-1, 1, 1))
            for array in (reference, candidate)]  # fmt: skip
    r, c = (row.argmax(axis=-1) for row in rows)
    return float((r == c).all(axis=1).mean())


def snr(reference, candidate):
    """Signal-to-noise ratio in decibels: 10 · log10(Σ r² / Σ (c − r)²), over all elements of two arrays of equal shape.

    20 dB are an error of a tenth of the signal, 40 of a hundredth, 120 of a millionth. Infinite where nothing differs;
    minus infinity where all of the reference is zero and the candidate is not, or one has a NaN or an infinity that the
    other has not.
    """
    r, c = (np.asarray(array).astype(np.float64).ravel() for array in (reference, candidate))
    same = (r == c) | (np.isnan(r) & np.isnan(c))
    if same.all():
        return np.inf
    if not (np.isfinite(r) & np.isfinite(c))[~same].all():
        return -np.inf
    noise = np.sum((c - r)[~same] ** 2)
    signal = np.sum(r[np.isfinite(r)] ** 2)
    return float(10 * np.log10(signal / noise)) if signal else -np.inf
