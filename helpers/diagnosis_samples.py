"""The boxes of the decision chart that are about what the application feeds: dtypes, shapes, numbers, preprocessing.

`helpers.diagnosis` walks the chart. A box is asked with the case, a SimpleNamespace that fills as the walk goes on, and
answers (verdict, evidence, short name of the fault or None).
"""

from itertools import permutations

import numpy as np

from . import hypotheses

FINE, FAULT, SKIPPED, NOT_REACHED = "fine", "fault", "skipped", "not reached"
"""The verdicts."""


def fine(evidence):
    """The answer of a box where nothing is wrong."""
    return FINE, evidence, None


def skipped(evidence):
    """The answer of a box that could not be asked, or not be decided."""
    return SKIPPED, evidence, None


def fault_found(fault, evidence):
    """The answer of a box that found what is wrong."""
    return FAULT, evidence, fault


def misfit(specs, feed):
    """(fault, sentence) when a model with these inputs does not take `feed`, else None."""
    names = [spec.name for spec in specs]
    if not isinstance(feed, dict):
        if len(specs) != 1:
            return "wrong input names", f"The model has the inputs {names}, the samples are one array without a name."
        feed = {names[0]: feed}
    if set(feed) != set(names):
        found = sorted(map(str, feed))
        return "wrong input names", f"The samples name {found}, the model's inputs are {sorted(names)}."
    for spec in specs:
        array = feed[spec.name]
        if array.dtype != spec.dtype:
            return "wrong dtype", (
                f"The samples are {array.dtype}{_range(array)}, the model takes {spec}. "
                f"MNN's own calls do not convert: use .astype('{spec.dtype}')."
            )
        if spec.shape is None:
            continue
        wanted, found = spec.shape[1:], array.shape[1:]
        if _fits(wanted, found):
            continue
        words = f"The samples are {list(array.shape)}, the model takes {spec}"
        if len(found) == len(wanted) == 3:
            for order, fault, remedy in (
                ((2, 0, 1), "layout", "these are height, width, channels: .transpose(0, 3, 1, 2) turns them"),
                ((1, 2, 0), "layout", "these are channels, height, width: .transpose(0, 2, 3, 1) turns them"),
                ((0, 2, 1), "transposed input", "height and width are swapped: .swapaxes(2, 3)"),
                ((1, 0, 2), "transposed input", "height and width are swapped: .swapaxes(1, 2)"),
            ):
                if _fits(wanted, [found[axis] for axis in order]):
                    return fault, f"{words}; {remedy}."
        return "wrong shape", f"{words}."
    return None


def _fits(wanted, found):
    return len(wanted) == len(found) and all(
        side == size
        for side, size in zip(wanted, found, strict=True)
        if isinstance(side, int) and isinstance(size, int)
    )


def _range(array):
    return f" from {array.min():.4g} to {array.max():.4g}" if array.dtype.kind in "iuf" else ""


def ask_signature(case):
    """Names, dtypes and shapes: those of both files, and those of the samples."""
    facts = case.reference
    for kind, ours, theirs in (("inputs", facts.inputs, case.mnn_inputs), ("outputs", facts.outputs, case.mnn_outputs)):
        a, b = ({spec.name: spec for spec in specs} for specs in (ours, theirs))
        if _same_door(a, b):
            continue
        words = f"The {kind} are {', '.join(map(str, ours))} in ONNX, {', '.join(map(str, theirs))} in the .mnn."
        swapped = kind == "outputs" and set(a) == set(b) and any(
            _same_door(a, {name: b[other] for name, other in zip(a, order, strict=True)}) for order in permutations(a)
        )
        return fault_found("swapped outputs" if swapped else "pair not made from each other", words)
    if facts.misfit:
        return fault_found(*facts.misfit)
    return fine(f"The samples fit {', '.join(map(str, facts.inputs))}, and the .mnn has the same names and shapes.")


def _same_door(ours, theirs):
    """Whether inputs or outputs have the same names and, as far as both files tell, the same shapes."""
    if set(ours) != set(theirs):
        return False
    for name, spec in ours.items():
        a, b = spec.shape, theirs[name].shape
        if a is None or b is None:
            continue
        if not _fits(a, b):
            return False
        if a and not isinstance(a[0], int) and isinstance(b[0], int):  # a batch that became fixed
            return False
    return True


def arrays_of(feed):
    return list(feed.values()) if isinstance(feed, dict) else [feed]


def unsound(feed):
    """(fault, sentence) when the numbers themselves are useless, else None."""
    for array in arrays_of(feed):
        bad = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(1, bool)
        if bad.any():
            rows = int(bad.reshape(len(array), -1).any(axis=1).sum())
            return "NaN in samples", (
                f"{int(bad.sum()):,} of {bad.size:,} values, in {rows} of {len(array)} samples, are NaN or infinite."
            )
        if array.dtype.kind == "f" and array.size > 1 and array.min() == array.max():
            value = f"{array.flat[0]:.6g}"
            return "constant samples", f"All {array.size:,} values are {value}: was anything written into them?"
        if len(array) > 2 and array.dtype.kind == "f" and (array == array[:1]).all():
            return "constant samples", f"All {len(array)} samples are the same one."
    return None


def ask_values(case):
    """NaN, infinity, samples that are all the same."""
    problem = unsound(case.feed)
    if problem:
        return fault_found(*problem)
    return fine("; ".join(f"{len(array)} samples, {statistics(array)}" for array in arrays_of(case.feed)) + ".")


def statistics(array):
    return (
        f"mean {array.mean(dtype=np.float64):.4g}, standard deviation {array.std(dtype=np.float64):.4g}, "
        f"from {array.min():.4g} to {array.max():.4g}"
    )


def scores(array, labels):
    """Whether an output can be scores of classes, of which `labels` names one for each sample."""
    return array.ndim == 2 and len(array) == len(labels) and array.shape[1] > labels.max() >= labels.min() >= 0


def _unanswerable(case):
    """Why nothing can be said about right and wrong answers, "" when something can."""
    facts = case.reference
    if case.labels is None:
        return "No labels were given, so right answers cannot be told from wrong ones."
    if facts.scored is None:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in facts.answers.items())
        return f"No output holds scores for the classes that the labels name ({shapes})."
    count, needed = len(case.labels), hypotheses.fewest(max(1, len(facts.guesses)))
    if count < needed:
        lowest = 0.05 ** (1 / count)
        return (
            f"{count} samples are too few: were all answers right, the accuracy could still be {lowest:.0%}, and "
            f"{needed} are the least by which one of {len(facts.guesses)} guesses can be told from luck."
        )
    return ""


def asker_of_guesses(box):
    """The step that asks whether one of the guesses of `box` is what went wrong."""

    def ask(case):
        facts = case.reference
        reason = _unanswerable(case)
        if reason:
            return skipped(reason)
        right, count = facts.right[facts.scored], len(case.labels)
        mine = [guess for guess in facts.guesses if guess[0] == box]
        as_fed = f"accuracy {_percent(right)} as fed"
        if not mine:
            return fine(f"There is nothing to swap in samples {list(arrays_of(case.feed)[0].shape)}; {as_fed}.")
        best = max(facts.guesses, key=lambda guess: guess[4].sum())  # over all boxes: the first of equals
        luck = hypotheses.chance(right, best[4])
        repaired = hypotheses.repairs(right, best[4])
        if best[0] == box and repaired and luck * len(facts.guesses) < hypotheses.CHANCE:
            numbers = f" As fed: {statistics(_first_float(case.feed))}; then: {best[3]}." if box == "scaling" else ""
            words = f"A{as_fed[1:]}, {_percent(best[4])} after {_after(best[2])} ({count} samples).{numbers}"
            return fault_found(best[1], words)
        if best[0] == box and repaired and luck < 0.1:  # four of four
            return skipped(
                f"Undecided: {as_fed}, {_percent(best[4])} after {_after(best[2])}, but among {len(facts.guesses)} "
                f"guesses {count} samples are too few to rule out luck. Give more."
            )
        tried = max(mine, key=lambda guess: guess[4].sum())
        return fine(f"A{as_fed[1:]}; at best {_percent(tried[4])} after {_after(tried[2])}.")

    return ask


def _first_float(feed):
    return next(array for array in arrays_of(feed) if array.dtype.kind == "f" and array.ndim > 1)


def _after(words):
    return words if words.split()[0].endswith("ing") else f"being {words}"


def _percent(right):
    return f"{100 * right.mean():.4g} %"


def ask_accuracy(case):
    """Whether the answers are right, now that nothing else explains wrong ones."""
    facts = case.reference
    reason = _unanswerable(case)
    if reason:
        return skipped(reason)
    right, count = facts.right[facts.scored], len(case.labels)
    agree = (case.answers[facts.scored].argmax(axis=1) == facts.answers[facts.scored].argmax(axis=1)).mean()
    low, high = hypotheses.interval(int(right.sum()), count)
    words = f"{_percent(right)} of {count} answers are right (95 % interval {low:.0%} to {high:.0%})"
    for other, better in facts.right.items():
        if hypotheses.repairs(right, better) and hypotheses.chance(right, better) < hypotheses.CHANCE:
            return fault_found("swapped outputs", f"By '{facts.scored}' {words}, by '{other}' {_percent(better)}.")
    classes = facts.answers[facts.scored].shape[1]
    if high < 0.5 or low <= 1 / classes:
        return fault_found(
            "model, labels or samples",
            f"{words}, though no guess about the samples helps and both engines agree on {agree:.0%} of them: the "
            "conversion is innocent. Look at the model, at the labels, and at some samples: do they show what their "
            "labels say?",
        )
    return fine(f"{words}; both engines agree on {agree:.0%}.")
