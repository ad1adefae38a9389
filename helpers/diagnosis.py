"""What is wrong with a model and its conversion? A decision chart, walked from the cheapest question to the deepest.

    print(diagnose("mnist_cnn.onnx", "mnist_cnn.mnn", (inputs, labels)))

First the files, then what the application feeds, then the weights, then the operators and the answers. Every step says
what it measured, and the walk ends at the first fault: whatever comes after it would be judged by wrong numbers.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from . import diagnosis_models, diagnosis_samples
from .diagnosis_samples import FAULT, FINE, NOT_REACHED, SKIPPED

MOST = 2000
"""Samples that are looked at; of more, as many evenly spaced ones."""

QUESTIONS = {
    "files": "Are both files there, with all their weights?",
    "export": "Was the model exported for inference?",
    "signature": "Do names, dtypes and shapes fit?",
    "values": "Are the samples sound numbers?",
    "scaling": "Are the samples scaled as in training?",
    "channels": "Are the channels in the right order?",
    "layout": "Does the memory hold what the shape says?",
    "orientation": "Are height and width where they belong?",
    "weights": "Does the .mnn hold the ONNX file's weights?",
    "outputs": "Are the outputs numbers, under their own names?",
    "layers": "Does every layer compute the same?",
    "accuracy": "Are the answers right?",
}
"""{name of a box: its question}, in the order in which `diagnose` asks them. "Yes" leads on, "no" to a fault."""

FAULTS = {
    "files": ("missing file", "missing external data", "unreadable file"),
    "export": ("train-mode export",),
    "signature": (
        "wrong input names", "wrong dtype", "wrong shape", "layout", "transposed input", "swapped outputs",
        "pair not made from each other",
    ),
    "values": ("NaN in samples", "constant samples"),
    "scaling": ("wrong mean/std", "pixel range", "inverted image"),
    "channels": ("channel order",),
    "layout": ("layout",),
    "orientation": ("transposed input",),
    "weights": ("missing external data", "fp16 overflow", "pair not made from each other"),
    "outputs": ("swapped outputs", "fp16 overflow", "NaN in answers", "engine gives up"),
    "layers": (
        "scaled weight", "wrong weights", "quantized layer", "dropped bias", "removed ReLU", "removed activation",
        "padding", "diverging layer", "diverging outputs", "pair not made from each other",
    ),
    "accuracy": ("model, labels or samples", "swapped outputs"),
}  # fmt: skip
"""{name of a box: the faults that it can find}."""


@dataclass(frozen=True)
class Step:
    """One box of the chart. verdict: "fine", "fault", "skipped" (evidence says why) or "not reached"."""

    box: str
    question: str
    verdict: str
    evidence: str

    def __str__(self):
        return f"{self.box:<11} {self.verdict:<7}  {self.evidence}".rstrip()


@dataclass(frozen=True)
class Diagnosis:
    """What was found; prints itself. fault: a short name such as "channel order", None when nothing was found.

    steps: one `Step` for each of QUESTIONS, in that order.
    """

    fault: str | None
    steps: tuple

    @property
    def ok(self):
        """True when every question was answered with yes. A skipped question leaves it False: nothing was proved."""
        return all(step.verdict == FINE for step in self.steps)

    @property
    def evidence(self):
        """What was measured at the step that found the fault, "" when none did."""
        return next((step.evidence for step in self.steps if step.verdict == FAULT), "")

    def __str__(self):
        skipped = [step.box for step in self.steps if step.verdict == SKIPPED]
        head = f"Found: {self.fault}" if self.fault else "Nothing found"
        if skipped and not self.fault:
            head += f", but not asked or not decided: {', '.join(skipped)}"
        return "\n".join([head, *(f"  {step}" for step in self.steps if step.verdict != NOT_REACHED)])


def diagnose(onnx_path, mnn_path, samples, *, timeout=300):
    """Walk the chart for an ONNX file, the .mnn file made from it and the samples; return a `Diagnosis`.

    samples: (inputs, labels), or inputs alone. inputs: exactly what the application feeds, an array [N, …] or {input
    name: array}; labels: int [N], the class of each. What needs labels is skipped without them. The more samples, the
    smaller the damage that shows: 9 can prove an utterly wrong preprocessing, a hundred a half wrong one.

    Preprocessing is judged with ONNX Runtime: of the guesses in `helpers.hypotheses` one counts when undoing it takes
    a third of the errors away, and chance explains that with a probability below 5 % for all guesses together. Engines
    and converter run in child processes, each at most `timeout` seconds. Raises ValueError when labels and inputs do
    not belong together.
    """
    inputs, labels = samples if isinstance(samples, tuple | list) and len(samples) == 2 else (samples, None)
    case = SimpleNamespace(onnx=Path(onnx_path), mnn=Path(mnn_path), timeout=timeout)
    case.feed, case.labels = _selected(inputs, labels)
    steps, fault = [], None
    for box, question in QUESTIONS.items():
        verdict, evidence, name = _ASKERS[box](case) if fault is None else (NOT_REACHED, "", None)
        fault = fault or name
        steps.append(Step(box, question, verdict, evidence))
    return Diagnosis(fault, tuple(steps))


def _selected(inputs, labels):
    """The inputs, an array or a dict of arrays, and the labels; both at most MOST long."""
    named = inputs if isinstance(inputs, dict) else {None: inputs}
    arrays = {name: np.asarray(array) for name, array in named.items()}
    counts = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
    if len(counts) != 1 or 0 in counts:
        raise ValueError(f"diagnose() needs at least one sample, and as many in every input; found {sorted(counts)}.")
    count = counts.pop()
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != (count,) or labels.dtype.kind not in "iu":
            raise ValueError(
                f"diagnose() needs one integer label for each of the {count} samples; "
                f"found {labels.dtype} {list(labels.shape)}."
            )
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST)).astype(int))
    arrays = {name: array[chosen] for name, array in arrays.items()}
    return arrays if isinstance(inputs, dict) else arrays[None], None if labels is None else labels[chosen]


_ASKERS = {
    "files": diagnosis_models.ask_files,
    "export": diagnosis_models.ask_export,
    "signature": diagnosis_samples.ask_signature,
    "values": diagnosis_samples.ask_values,
    **{box: diagnosis_samples.asker_of_guesses(box) for box in ("scaling", "channels", "layout", "orientation")},
    "weights": diagnosis_models.ask_weights,
    "outputs": diagnosis_models.ask_outputs,
    "layers": diagnosis_models.ask_layers,
    "accuracy": diagnosis_samples.ask_accuracy,
}
