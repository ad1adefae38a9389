"""A shipped model that can be traced and checked: weights, ONNX, MNN, how each was made, checksums, a regression test.

`bundle()` makes the folder, `verify()` looks at it later, `python check.py` inside it needs only MNN and numpy.
"""

import hashlib
import importlib.metadata
import json
import platform
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import native
from .convert import read_mnn
from .data import calibration_samples, sha256
from .paths import ARTIFACTS, atomic_write, short, write_text
from .runtime import MnnModule, OrtModel

MANIFEST, SEAL = "manifest.json", "manifest.sha256"


class ReleaseError(RuntimeError):
    """A bundle is not what was released. `files`: the names of those that are missing, changed or added."""

    def __init__(self, message, files=()):
        super().__init__(message)
        self.files = list(files)


@dataclass(frozen=True)
class Release:
    """A bundle that was found in order; prints itself. manifest: its content as a dict; checked: what check.py said."""

    path: Path
    manifest: dict = field(repr=False)
    checked: str = ""

    def __str__(self):
        files = self.manifest["files"]
        parity = self.manifest["parity"]
        return "\n".join([
            f"{short(self.path)}: in order, {len(files)} files, {sum(f['bytes'] for f in files.values()):,} bytes",
            f"  model   {self.manifest['model']}, {files[self.manifest['model']]['bytes']:,} bytes, "
            f"MNN {self.manifest['versions']['MNN']}",
            f"  parity  {parity['accuracy']:.2%} of {parity['images']:,} images right, {parity['changed']} predictions "
            "unlike ONNX Runtime's",
            f"  check   {self.checked or 'not run'}",
        ])  # fmt: skip


def bundle(mnn_path, *, onnx_path, weights_path, images, labels, folder=None, rule="", calibration_count=0):
    """Make the release folder of an .mnn file and return its path; an older one of that name is replaced.

    The file that variants() wrote beside mnn_path (the exact arguments) and its logs go in where they exist.
    images, labels: what accuracy and parity are measured on; 64 clear cases of them become the snapshot.
    folder: default artifacts/release/mnist_cnn_v1_onnx2mnn. rule: why this model was chosen, in words.
    calibration_count: above 0, the checksums of that many calibration images are listed.
    Raises FileNotFoundError when one of the three files is missing. The folder appears when it is complete.
    """
    folder = Path(folder or ARTIFACTS / "release" / "mnist_cnn_v1_onnx2mnn")
    sources = [Path(path) for path in (weights_path, onnx_path, mnn_path)]
    for path in sources:
        if not path.is_file():
            raise FileNotFoundError(f"bundle() needs {short(path)}, which does not exist. Make it first.")
    with atomic_write(folder) as place:
        place.mkdir()
        for path in sources:
            shutil.copyfile(path, place / path.name)
        _copy_history(sources[2], place)
        if calibration_count:
            write_text(place / "calibration.sha256", _calibration_list(calibration_count))
        manifest = _manifest(folder.name, place, sources, images, labels, rule)
        shutil.copyfile(Path(__file__).with_name("release_check.py"), place / "check.py")
        manifest["files"] = {
            file.relative_to(place).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file)}
            for file in _files(place)
        }
        write_text(place / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        write_text(place / SEAL, f"{sha256(place / MANIFEST)}  {MANIFEST}\n")
    return folder


def _copy_history(mnn_path, place):
    """How the model was made: the exact arguments, the logs of the tools."""
    made = mnn_path.with_suffix(".json")
    if made.exists():
        shutil.copyfile(made, place / "arguments.json")
    for log in sorted((ARTIFACTS / "logs").glob(f"*-{mnn_path.stem}.log")):
        (place / "logs").mkdir(exist_ok=True)
        text = log.read_text(encoding="utf-8", errors="replace")
        write_text(place / "logs" / log.name, text.replace(str(ARTIFACTS), "artifacts"))


def _calibration_list(count):
    """A line for each image that the model was calibrated on: the SHA-256 of its float32 values, and its number."""
    samples = calibration_samples(count)
    return "".join(f"{hashlib.sha256(sample.tobytes()).hexdigest()}  {n}\n" for n, sample in enumerate(samples))


def _manifest(name, place, sources, images, labels, rule):
    weights, onnx_path, mnn_path = (place / path.name for path in sources)
    model = MnnModule(mnn_path, threads=2)
    reference, answers = (
        np.concatenate([run(images[start : start + 250]) for start in range(0, len(images), 250)])
        for run in (OrtModel(onnx_path, threads=2), model)
    )
    identity = native.call("helpers.release:_identity", mnn_path)[0]
    if not identity["label"].startswith("{"):
        raise ValueError(
            f"{mnn_path.name} does not carry its inputs and outputs as a label. Convert it with convert_onnx()."
        )
    # Clear cases only: a close call may go the other way on a CPU with other instructions.
    top = np.sort(answers, axis=1)
    clear = np.flatnonzero(top[:, -1] - top[:, -2] > 2)[:64]
    np.savez_compressed(place / "snapshot.npz", inputs=images[clear], outputs=answers[clear])
    return {
        "name": name,
        "model": mnn_path.name,
        "inputs": {spec.name: [str(spec.shape), str(spec.dtype)] for spec in model.inputs.values()},
        "rule": rule,
        "label": identity["label"],
        "uuid": identity["uuid"],
        "made_from": [weights.name, onnx_path.name],
        "versions": {
            "Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
            **{package: importlib.metadata.version(package)
               for package in ("MNN", "torch", "onnx", "onnxruntime", "numpy")},
        },
        "parity": {
            "images": len(images),
            "accuracy": float((answers.argmax(1) == labels).mean()),
            "changed": int((answers.argmax(1) != reference.argmax(1)).sum()),
            "max_abs": float(np.abs(answers - reference).max()),
        },
        "regression": {"atol": 0.5 if identity["integer"] else 1e-3, "images": len(clear)},
    }  # fmt: skip


def _identity(mnn_path):
    """Label (bizCode) and UUID that MNN keeps in the file, and whether it computes in integers. In a child only."""
    net = read_mnn(mnn_path)
    integer = bool(net.get("extraTensorDescribe"))
    return {"label": net.get("bizCode", ""), "uuid": net.get("mnn_uuid", ""), "integer": integer}


def _files(folder):
    return sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def verify(folder, *, run_check=True):
    """Look at a bundle: every file there and unchanged, none added, the model's UUID and label as recorded, and (unless
    run_check is False) its own check.py content. Returns a `Release`.

    Raises ReleaseError that names the files. The seal of the manifest protects against accidents and hasty hands; who
    can write the whole folder can forge it all, so keep manifest.sha256 in a second place as well.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).is_file() or not (folder / SEAL).is_file():
        raise ReleaseError(f"{short(folder)} is not a release: {MANIFEST} or {SEAL} is missing.", [MANIFEST])
    if (folder / SEAL).read_text(encoding="utf-8").split()[:1] != [sha256(folder / MANIFEST)]:
        raise ReleaseError(f"{short(folder)}: {MANIFEST} was changed after the release, or its seal was.", [MANIFEST])
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    recorded = manifest["files"]
    there = {file.relative_to(folder).as_posix(): file for file in _files(folder)}
    wrong = {name: "is missing" for name in recorded if name not in there}
    wrong |= {name: "was added" for name in there if name not in recorded and name not in (MANIFEST, SEAL)}
    for name in recorded.keys() & there.keys():
        found = sha256(there[name])
        if found != recorded[name]["sha256"]:
            wrong[name] = f"was changed (SHA-256 {found[:12]}…, released with {recorded[name]['sha256'][:12]}…)"
    if wrong:
        sentences = "; ".join(f"{name} {what}" for name, what in sorted(wrong.items()))
        raise ReleaseError(f"{short(folder)} is not what was released: {sentences}. Fetch it again.", sorted(wrong))
    identity = native.call("helpers.release:_identity", folder / manifest["model"])[0]
    if (identity["uuid"], identity["label"]) != (manifest["uuid"], manifest["label"]):
        raise ReleaseError(
            f"{short(folder)}: {manifest['model']} carries the UUID {identity['uuid']}, the manifest says "
            f"{manifest['uuid']}. They belong to different conversions.",
            [manifest["model"]],
        )
    checked = ""
    if run_check:
        finished = native.run([sys.executable, "-B", folder / "check.py"], timeout=120)
        checked = native.last_lines(finished.log, 1)
        if finished.returncode != 0:
            raise ReleaseError(f"{short(folder)}: check.py ended with {finished}", ["check.py"])
    return Release(folder, manifest, checked)
