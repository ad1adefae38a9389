"""Does this model still answer as it did on the day of its release? Run: python check.py [model.mnn]

Needs MNN and numpy, and the two files beside it: manifest.json and snapshot.npz. Exit code 0 means yes.
"""

import json
import sys
from pathlib import Path

import numpy as np


def main(arguments):
    import MNN.expr
    import MNN.nn

    folder = Path(__file__).resolve().parent
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    signature = json.loads(manifest["label"])
    path = arguments[0] if arguments else str(folder / manifest["model"])
    with np.load(folder / "snapshot.npz") as snapshot:
        inputs, expected = snapshot["inputs"], snapshot["outputs"]
    runtime = MNN.nn.create_runtime_manager(({"backend": 0, "numThread": 1},))
    names = list(signature["inputs"]), list(signature["outputs"])
    module = MNN.nn.load_module_from_file(path, *names, runtime_manager=runtime)
    variable = MNN.expr.placeholder(list(inputs.shape), MNN.expr.NCHW, MNN.expr.float)
    variable.write(np.ascontiguousarray(inputs))
    result = module.onForward([variable])[0]
    answers = MNN.expr.convert(result, MNN.expr.NCHW).read().reshape(expected.shape)
    same = int((answers.argmax(1) == expected.argmax(1)).sum())
    apart = float(np.abs(answers - expected).max())
    atol = manifest["regression"]["atol"]
    ok = same == len(expected) and apart <= atol
    verdict = "as released" if ok else "DIFFERS"
    print(f"{verdict}: {same} of {len(expected)} predictions the same, logits within {atol:g}: {apart <= atol}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
