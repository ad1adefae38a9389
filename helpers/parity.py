"""How far apart are two answers to the same question?"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from . import native
from .runtime import MnnModule, OrtModel


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


@dataclass(frozen=True)
class Verdict:
    """Outcome of `verify`: {output name: Parity or a sentence saying why there is none}, and a reason when not ok."""

    outputs: dict
    reason: str = ""

    @property
    def ok(self):
        """True when every output agrees and nothing else is wrong."""
        return not self.reason and bool(self.outputs) and all(getattr(p, "ok", False) for p in self.outputs.values())

    def __str__(self):
        lines = [f"  {name}: {parity}" for name, parity in self.outputs.items()]
        return "\n".join(["verified" if self.ok else f"NOT VERIFIED {self.reason}".rstrip(), *lines])


def verify(onnx_path, mnn_path, inputs=None, *, atol=1e-4, rtol=1e-3, timeout=300):
    """Run an ONNX file on ONNX Runtime and an .mnn file on MNN, each in a child process, and compare every output.

    inputs: an array or {name: array}; without them, seeded normal noise (0 and 1 for integers) with the batch sizes 1
    and, where the batch is dynamic, 3. Either way a second set of inputs is run as well: a pair of models whose
    outputs never react to their inputs computed nothing, and agreement between them proves nothing (a classifier that
    returns the class alone may answer all noise alike: pass inputs with different answers).

    Returns a `Verdict`; a crash, an error or a time-out in a child is a verdict that is not ok, with its reason.
    Raises FileNotFoundError when a file is missing, ValueError when inputs cannot be made up (a dynamic axis other
    than the batch: pass inputs).
    """
    for path in (onnx_path, mnn_path):
        if not Path(path).is_file():
            raise FileNotFoundError(f"verify() needs {path}, which does not exist.")
    results = []
    feeds = inputs
    for engine, path in (("ONNX Runtime", onnx_path), ("MNN", mnn_path)):
        try:
            # ONNX Runtime goes first and makes up the inputs, MNN then gets the same.
            (feeds, answers), _ = native.call("helpers.parity:_answers", engine, Path(path), feeds, timeout=timeout)
        except _NeedsInputs as error:
            raise ValueError(str(error)) from None
        except Exception as error:
            return Verdict({}, f"({engine}): {error}")
        results.append(answers)
    reference, candidate = results
    if set(reference[0]) != set(candidate[0]):
        return Verdict({}, f"(outputs): {sorted(reference[0])} in ONNX, {sorted(candidate[0])} in MNN")
    outputs = {name: _compare_all([r[name] for r in reference], [c[name] for c in candidate], atol, rtol)
               for name in reference[0]}  # fmt: skip
    deaf = [name for name in outputs if _never_reacts([c[name] for c in candidate])]
    if len(deaf) == len(outputs):
        return Verdict(outputs, f"(computed nothing): {', '.join(deaf)} stays the same for different inputs")
    return Verdict(outputs)


class _NeedsInputs(ValueError):
    """Raised in the child: there is no telling which inputs the model takes."""


def _answers(engine, path, feeds):
    """Run one engine on a list of {name: array}; make the list first where it is not one. In a child process only."""
    model = OrtModel(path) if engine == "ONNX Runtime" else MnnModule(path)
    if not isinstance(feeds, list):
        feeds = _made_up(model) if feeds is None else _with_second(model, feeds)
    answers = []
    for feed in feeds:
        result = model(feed)
        answers.append(result if isinstance(result, dict) else {next(iter(model.outputs)): result})
    return feeds, answers


def _made_up(model):
    """Two feeds with a batch of 1 and, where axis 0 of every input is dynamic, one with a batch of 3."""
    rng = np.random.default_rng(0)
    dynamic = all(spec.shape and not isinstance(spec.shape[0], int) for spec in model.inputs.values())

    def feed(batch):
        arrays = {}
        for spec in model.inputs.values():
            shape = [batch if axis == 0 and not isinstance(side, int) else side for axis, side in enumerate(spec.shape)]
            if not all(isinstance(side, int) for side in shape):
                raise _NeedsInputs(
                    f"verify() cannot make up an input for {spec}: pass inputs={{{spec.name!r}: array}}."
                )
            noise = rng.normal(size=shape) if spec.dtype.kind == "f" else rng.integers(0, 2, size=shape)
            arrays[spec.name] = np.asarray(noise).astype(spec.dtype)
        return arrays

    return [feed(batch) for batch in ((1, 1, 3) if dynamic else (1, 1))]


def _with_second(model, inputs):
    """The inputs given, and the same reversed along the last axis, floats as 1 - x."""
    given = inputs if isinstance(inputs, dict) else {next(iter(model.inputs)): inputs}
    other = {}
    for name, array in given.items():
        array = np.asarray(array)
        turned = array[..., ::-1] if array.ndim else array
        other[name] = -turned + 1 if array.dtype.kind == "f" else turned
    return [given, other]


def _compare_all(reference, candidate, atol, rtol):
    """The Parity of all runs of one output together, or a sentence."""
    for r, c in zip(reference, candidate, strict=True):
        if r.shape != c.shape:
            return f"shape {list(r.shape)} in ONNX, {list(c.shape)} in MNN"
        if r.dtype != c.dtype:
            return f"dtype {r.dtype} in ONNX, {c.dtype} in MNN"
        if c.size == 0:
            return "empty: nothing was computed"
        if c.dtype.kind == "f" and np.isnan(c).all():
            return "NaN everywhere: nothing was computed"
    parts = [compare(r, c, atol=atol, rtol=rtol) for r, c in zip(reference, candidate, strict=True)]
    return min(parts, key=lambda part: (part.ok, -part.max_abs))


def _never_reacts(answers):
    first, second = answers[:2]
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
