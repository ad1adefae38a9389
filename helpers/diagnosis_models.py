"""The boxes of the decision chart that are about the two files: are they whole, do they hold and compute the same?

Asked and answered like those of `helpers.diagnosis_samples`.
"""

from types import SimpleNamespace

import numpy as np

from . import hypotheses, native
from .diagnosis_samples import arrays_of, fault_found, fine, misfit, scores, skipped, statistics, unsound
from .faults import HALF_MAX
from .layer_faults import compare_weights
from .onnx_export import constants_of, files
from .paths import short


def ask_files(case):
    """Whether both files are there, whole, and can be loaded; fills case.reference for all later boxes."""
    for path in (case.onnx, case.mnn):
        if not path.is_file():
            return fault_found("missing file", f"{short(path)} does not exist.")
    try:
        parts = files(case.onnx)
    except Exception:  # protobuf's DecodeError, whose class differs between its implementations
        size = case.onnx.stat().st_size
        return fault_found("unreadable file", f"{short(case.onnx)} is no ONNX file ({size:,} bytes).")
    missing = [short(part) for part in parts if not part.is_file()]
    if missing:
        return fault_found(
            "missing external data",
            f"{short(case.onnx)} has only {case.onnx.stat().st_size:,} bytes; its weights are in {', '.join(missing)}, "
            "which is missing. An .mnn converted in that state holds whatever was in memory.",
        )
    try:
        case.mnn_inputs, case.mnn_outputs = native.call("helpers.runtime:read_signature", case.mnn)[0]
        case.reference, _ = native.call(
            "helpers.diagnosis_models:_ask_onnx", case.onnx, case.feed, case.labels, _in_training(case.onnx),
            timeout=case.timeout,
        )  # fmt: skip
    except (ValueError, native.NativeError) as error:
        return fault_found("unreadable file", str(error))
    sizes = " and ".join(f"{short(path)} {path.stat().st_size:,} bytes" for path in (*parts, case.mnn))
    return fine(f"{sizes}; both engines load them.")


def _ask_onnx(path, feed, labels, training):
    """Everything that ONNX Runtime is needed for. In a child process only.

    training: what the graph says about training mode. Returns a SimpleNamespace: inputs, outputs (lists of
    TensorSpec); training; refused: why ONNX Runtime does not load a graph in training mode; misfit: (fault, sentence)
    when the model does not take `feed`, else None, and then also answers: {output: array}; drift: the largest change
    of an answer when it is asked again in another batch, relative to the answers' spread (None: not asked); scored:
    the output that `labels` are compared with; right: {output: bool [N]}; guesses: [(box, fault, words, statistics,
    bool [N])].
    """
    from .runtime import OrtModel

    try:
        model = OrtModel(path)
    except ValueError as error:
        # ONNX Runtime refuses some graphs in training mode; the graph itself says so more clearly.
        if training:
            return SimpleNamespace(training=training, drift=None, refused=str(error))
        raise
    facts = SimpleNamespace(
        inputs=list(model.inputs.values()), outputs=list(model.outputs.values()), training=training,
        refused="", drift=None, scored=None, guesses=[],
    )  # fmt: skip
    facts.misfit = misfit(facts.inputs, feed)
    if facts.misfit or unsound(feed):
        return facts
    if not isinstance(feed, dict):
        feed = {facts.inputs[0].name: feed}
    facts.answers = _answers(model, feed)
    facts.drift = _drift(model, feed, facts.answers)
    if labels is None:
        return facts
    facts.scored = next((name for name, array in facts.answers.items() if scores(array, labels)), None)
    if facts.scored is None:
        return facts
    facts.right = {
        name: array.argmax(axis=1) == labels for name, array in facts.answers.items() if scores(array, labels)
    }
    name = next((name for name, array in feed.items() if array.dtype.kind == "f" and array.ndim > 1), None)
    for box, fault, words, changed in () if name is None else hypotheses.guesses(feed[name]):
        if changed.shape != feed[name].shape or np.array_equal(changed, feed[name]):
            continue
        changed = np.ascontiguousarray(changed, feed[name].dtype)
        right = _answers(model, feed | {name: changed})[facts.scored].argmax(axis=1) == labels
        facts.guesses.append((box, fault, words, statistics(changed), right))
    return facts


def _answers(model, feed):
    """{output: array} for all samples: in one batch, or in as many as the model's fixed batch asks for."""
    spec = next(iter(model.inputs.values()))
    count, fixed = len(next(iter(feed.values()))), spec.shape[0] if spec.shape else None
    size = fixed if isinstance(fixed, int) else count
    parts = []
    for start in range(0, count, size):
        # A last batch that is too short is filled up with its own last sample.
        rows = np.minimum(np.arange(start, start + size), count - 1)
        parts.append(model.named({name: array[rows] for name, array in feed.items()}))
    joined = {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}
    return {name: array[:count] if len(array) >= count else array for name, array in joined.items()}


def _in_training(path):
    """The operators of an ONNX file that are in training mode, in words; "" when there are none."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = constants_of(graph)
    training = []
    for node in graph.node:
        if node.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in node.attribute):
            training.append(node.op_type)
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in constants:
            tensor = constants[node.input[2]]
            if tensor.data_location != onnx.TensorProto.EXTERNAL and onnx.numpy_helper.to_array(tensor).any():
                training.append(node.op_type)
    return ", ".join(f"{training.count(op)} {op}" for op in dict.fromkeys(training))


def _drift(model, feed, answers):
    """How far the first answers move when the first sample is asked again, among copies of itself."""
    copies = np.zeros(min(8, len(next(iter(feed.values())))), int)
    largest = 0.0
    for name, array in _answers(model, {name: array[copies] for name, array in feed.items()}).items():
        expected = answers[name]
        if array.dtype.kind != "f" or not np.isfinite(expected).all():
            continue
        spread = float(expected.std(dtype=np.float64)) or 1.0
        change = np.abs(array[:1].astype(np.float64) - expected[:1])
        largest = max(largest, float(change.max(initial=0.0)) / spread)
    return largest


def ask_export(case):
    """Whether the graph is in training mode, or behaves so."""
    facts, drift = case.reference, case.reference.drift or 0.0
    moved = f"an answer moves by {drift:.0%} of the answers' spread when asked again in another batch"
    if facts.training:
        effect = moved if drift > 0.01 else "ONNX Runtime ignores that here, another engine need not"
        return fault_found(
            "train-mode export",
            f"The graph has {facts.training} in training mode; {facts.refused or effect}. Export after model.eval().",
        )
    if drift > 0.01:
        words = f"The graph's operators look harmless, but {moved}: batch statistics or chance."
        return fault_found("train-mode export", words)
    if facts.drift is None:
        return fine("No operator is in training mode. No answer was asked for: the samples cannot be fed as they are.")
    return fine("No operator is in training mode, and answers depend neither on chance nor on the rest of the batch.")


def ask_weights(case):
    """Whether the .mnn holds the weights of the ONNX file."""
    try:
        case.weights = compare_weights(case.onnx, case.mnn, timeout=case.timeout)
    except native.NativeError as error:
        case.weights = f"the converter cannot list the .mnn: {error}"
    if isinstance(case.weights, str):
        return skipped(f"The weights cannot be laid side by side: {case.weights}. The layers will tell.")
    if not case.weights:
        return fine("There are no weights.")
    overflow = next((layer for layer in case.weights if layer.kind == "fp16 overflow"), None)
    if overflow:
        return fault_found("fp16 overflow", f"In {overflow.node} {overflow.words}. Convert without fp16=True.")
    others = [layer for layer in case.weights if layer.kind == "wrong weights"]
    sound = [layer for layer in case.weights if layer.kind != "wrong weights"]
    listed = "; ".join(f"{layer.node}: {layer.words}" for layer in others[:3])
    wrong = f"{len(others)} of {len(case.weights)} layers hold other weights ({listed})"
    # Had the whole .mnn been made from another model, the weights inside the ONNX file would differ too.
    only_external = sound and all(x.external for x in others) and not any(x.external for x in sound)
    if others and (only_external or any(layer.implausible for layer in others)):
        return fault_found(
            "missing external data",
            f"{wrong}. Such numbers are left-over memory: the .mnn was converted while the file with the weights was "
            "missing.",
        )
    if len(others) > 1 and not sound:
        words = f"{wrong}: this .mnn was made from another training or model."
        return fault_found("pair not made from each other", words)
    if others:
        return fine(f"{wrong}; which layers that spoils is asked below.")
    return fine(f"Those of all {len(case.weights)} layers are recognised; single layers are compared below.")


def _ask_mnn(path, feed):
    """{output: array} of an .mnn file. In a child process only."""
    from .runtime import MnnModule

    model = MnnModule(path)
    if not isinstance(feed, dict):
        feed = {next(iter(model.inputs)): feed}
    return _answers(model, feed)


def ask_outputs(case):
    """Whether the outputs are numbers, and each under its own name."""
    from .parity import snr

    reference = case.reference.answers
    broken = [name for name, array in reference.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if broken:
        return fault_found("NaN in answers", f"Already {_not_finite('ONNX Runtime', broken[0], reference[broken[0]])}.")
    try:
        case.answers = native.call("helpers.diagnosis_models:_ask_mnn", case.mnn, case.feed, timeout=case.timeout)[0]
    except (ValueError, RuntimeError) as error:
        return fault_found("engine gives up", f"MNN does not answer: {error}")
    for name, array in case.answers.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            node, largest = _largest_activation(case)
            return fault_found(
                "fp16 overflow" if largest > HALF_MAX else "NaN in answers",
                f"{_not_finite('MNN', name, array)}. In ONNX Runtime the largest number inside the network is "
                f"{largest:.3g}, at {node}; half precision ends at {HALF_MAX}.",
            )

    def alike(ours, theirs):
        """In decibels; minus infinity for other shapes."""
        r, c = reference[ours], case.answers[theirs]
        return snr(r, c) if r.shape == c.shape else -np.inf

    for name in reference:
        twin = max(reference, key=lambda other: alike(name, other))
        if twin != name and alike(name, twin) > 20 > alike(name, name):
            return fault_found(
                "swapped outputs",
                f"MNN's '{twin}' is ONNX's '{name}' (signal-to-noise ratio {_decibels(alike(name, twin))}); its own "
                f"'{name}' is not ({_decibels(alike(name, name))}).",
            )
    case.agreement = min(alike(name, name) for name in reference)
    agreement = "; ".join(f"{name} {_decibels(alike(name, name))}" for name in reference)
    return fine(f"No output is another one's double; signal-to-noise ratio of MNN to ONNX Runtime: {agreement}.")


def _decibels(value):
    return "exact" if value == np.inf else "nothing alike" if value == -np.inf else f"{value:.0f} dB"


def _not_finite(engine, name, array):
    share = f"{(~np.isfinite(array)).mean():.0%}"
    return f"{share} of what {engine} returns as '{name}' is NaN or infinite; the samples are not"


def _largest_activation(case):
    """(name of the node, largest absolute value that any node hands on, infinity included), by ONNX Runtime."""
    from .intermediates import onnx_tensors, read_onnx

    graph = read_onnx(case.onnx)
    names = {name: node.name for node in graph.nodes for name in node.outputs}
    feed = case.feed if isinstance(case.feed, dict) else {graph.inputs[0]: case.feed}
    tensors = onnx_tensors(case.onnx, feed, graph.tensors, timeout=case.timeout)
    sizes = {name: float(np.nanmax(np.abs(array.astype(np.float64)), initial=0.0)) for name, array in tensors.items()
             if array.dtype.kind == "f"}  # fmt: skip
    largest = max(sizes, key=sizes.get)
    return names[largest], sizes[largest]


def ask_layers(case):
    """Which layer computes something else, and what kind of fault that is."""
    from .parity import layer_parity

    feed = {name: array[:16] for name, array in case.feed.items()} if isinstance(case.feed, dict) else case.feed[:16]
    fixed = case.reference.inputs[0].shape[0] if case.reference.inputs[0].shape else None
    if isinstance(fixed, int):
        take = np.arange(fixed) % len(arrays_of(feed)[0])
        feed = {name: a[take] for name, a in feed.items()} if isinstance(feed, dict) else feed[take]
    try:
        report = layer_parity(case.onnx, case.mnn, feed, timeout=case.timeout)
        reason = f"Of {len(report.layers)} layers that can be compared none differs."
    except (ValueError, RuntimeError) as error:
        report, reason = None, f"The layers cannot be compared: {error}"
    if report is None or report.ok:
        if case.agreement < 20:
            return fault_found("diverging outputs", f"The outputs do not agree ({_decibels(case.agreement)}). {reason}")
        if report is None or not report.layers:
            return skipped(reason)
        return fine(f"Each of {len(report.layers)} layers computes in MNN what it computes in ONNX Runtime.")
    first = report.first
    if isinstance(case.weights, str) and case.agreement < 20:
        words = f"{case.weights[0].upper()}{case.weights[1:]}, and from {first.name} on they compute something else."
        return fault_found("pair not made from each other", words)
    kind, node, words = _kind(first, case.weights)
    more = len(report.wrong) - 1
    return fault_found(
        kind,
        f"{node} ({first.onnx_op}) is the first layer that differs, with a signal-to-noise ratio of its own of "
        f"{_decibels(first.own_snr_db)}: {words}." + (f" {more} more differ after it." if more else ""),
    )


ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Elu", "HardSwish", "Gelu")


def _kind(layer, weights):
    """(short name, node, words) of what is wrong with a LayerParity, from the two files."""
    known = () if isinstance(weights, str) else weights
    found = next((entry for entry in known if entry.node in layer.nodes and entry.kind), None)
    if found:
        return found.kind, found.node, found.words
    ours, theirs = layer.onnx_op.lower(), layer.mnn_op.lower()
    lost = next((name for name in ACTIVATIONS if name.lower() in ours.split("+")), None)
    if lost and lost.lower() not in theirs and not (lost == "Clip" and "relu6" in theirs):
        kind = "removed ReLU" if lost == "Relu" else "removed activation"
        return kind, layer.name, f"{layer.mnn_op or 'no operator'} in the .mnn does not apply the {lost}"
    if "pool" in ours:
        words = f"pooling has no weights, so it reads other places ({layer.onnx_op} and {layer.mnn_op})"
        return "padding", layer.name, words
    words = f"weights and activation are the same; {layer.mnn_op or 'no operator'} does the rest otherwise"
    return "diverging layer", layer.name, words
