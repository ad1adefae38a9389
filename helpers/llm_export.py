"""A Hugging Face folder → a folder that MNN's language model engine (MNN-LLM) runs, with weights of 8 or 4 bits.

llmexport does the work, as a script in a child process. What it makes is tried before it is put in place.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

from . import made, native
from .llm_weights import CheckpointError, check_checkpoint
from .paths import ARTIFACTS, LLM_CACHE, atomic_write, short, write_text

FILES = ("config.json", "llm_config.json", "llm.mnn", "llm.mnn.weight", "llm.mnn.json", "tokenizer.mtok")
"""What every exported folder has; one whose model does not tie its embeddings has embeddings_bf16.bin too."""


def export(checkpoint, *, bits, block, folder=LLM_CACHE, timeout=1800):
    """Folder `folder`/<checkpoint's name>-w8-b32 that MNN.llm.create() reads: reused or made, and says which.

    checkpoint: Hugging Face folder (see llm_weights). bits: 8 or 4 for every weight of a linear layer; block: that many
    neighbouring weights, 32, 64 or 128, share a scale and a zero point in float32. Embeddings are read from the last
    layer's weights where the model ties the two, else kept as bfloat16. timeout: seconds. About 15 s and 1.6 GB of
    memory for 135 million parameters, all in child processes. Reused is what was made from the same, unchanged files
    by the same versions of llmexport and MNN.

    Raises CheckpointError; ValueError for other bits and blocks; ToolError, with the tools' own words, when llmexport
    or MNN's converter fails, crashes or takes too long, or what they wrote is not whole or MNN can't run it. The
    folder appears when all is well. The whole log: artifacts/logs/llm-export-<folder's name>.log.
    """
    checkpoint = check_checkpoint(checkpoint)
    if bits not in (8, 4) or block not in (32, 64, 128):
        raise ValueError(f"export() takes bits 8 or 4 and block 32, 64 or 128; found bits={bits!r}, block={block!r}.")
    path = Path(folder) / f"{checkpoint.name}-w{bits}-b{block}"
    made_from = {
        "checkpoint": made.fingerprint(checkpoint), "bits": bits, "block": block,
        "llmexport": importlib.metadata.version("llmexport"), "MNN": importlib.metadata.version("MNN"),
    }  # fmt: skip
    if made.fits(path, made_from) and (path / "config.json").is_file():
        print(f"{short(path)}: reused ({made.size(path):,} bytes)")
        return path
    why = "made again, since it was not whole or made from something else," if path.exists() else "made"
    start = time.perf_counter()
    with atomic_write(path) as temporary:
        log_path = ARTIFACTS / "logs" / f"llm-export-{path.name}.log"
        _run(checkpoint, temporary.parent.resolve(), bits, block, log_path, timeout).rename(temporary)
        # The exported folder itself does not tell the context window, nor how many key-value heads there are.
        shutil.copyfile(checkpoint / "config.json", temporary / "checkpoint.json")
        # config.json is the learner's to change: it says how the model is run, not what it is.
        made.seal(temporary, made_from, [file.name for file in temporary.iterdir() if file.name != "config.json"])
    seconds = time.perf_counter() - start
    print(f"{short(path)}: {why} from {short(checkpoint)} in {seconds:.0f} s ({made.size(path):,} bytes)")
    return path


def _run(checkpoint, scratch, bits, block, log_path, timeout):
    """Let llmexport make the folder `scratch`/model, try that, and return it. Raises ToolError."""
    arguments = [
        "--path", _relative(checkpoint, scratch), "--export", "mnn", "--dst_path", "model",
        "--quant_bit", str(bits), "--quant_block", str(block), "--mnnconvert", _write_converter(scratch),
    ]  # fmt: skip
    script = Path(importlib.util.find_spec("llmexport").origin).with_name("llmexport.py")
    model, log, problem = scratch / "model", "", None
    try:
        # As a script: as a package it does not import, since its modules look for one another beside the script.
        finished = native.run([sys.executable, script, *arguments], timeout=timeout, cwd=scratch)
        log = finished.log
        problem = _lack(model) if finished.returncode == 0 else f"it ended with {finished.ending}."
        if problem is None:
            log += native.call("helpers.llm_export:_try", model, timeout=timeout, cwd=scratch)[1]
    except native.NativeError as error:
        log += error.log
        problem = (
            f"there was no result after {timeout:g} s. Give it more with timeout=, or close other programs."
            if error.returncode is None
            else f"MNN, loading it, ended with {native.Finished(error.returncode, '', 0).ending}."
        )
    except native.ToolError as error:
        problem = str(error)
    log, converters = _plain(log), _plain(_read(scratch / ".export.log"))
    write_text(log_path, f"llmexport.py {' '.join(arguments)}\n\n{log}\n\nMNN's converter:\n\n{converters}\n")
    if problem:
        words = native.last_lines(log, 3)
        if "Converted Success!" not in converters:
            words += f"\nThe converter's: {native.last_lines(converters, 3) or '(none)'}"
        raise native.ToolError(
            f"llmexport cannot make a model for MNN from '{short(checkpoint)}', {bits} bits, block {block}: {problem}\n"
            f"The last words: {words}\nThe whole log: {short(log_path)}",
            f"{log}\n{converters}",
        )
    return model


def _relative(checkpoint, scratch):
    """The checkpoint's path as llmexport is given it: as short as can be, since what stands in it matters."""
    try:
        path = os.path.relpath(checkpoint, scratch)
    except ValueError:  # on Windows: on another drive
        path = str(checkpoint)
    trap = next((word for word in ("bge", "gte", "Qwen3-Embedding") if word in path), None)
    if trap:
        raise CheckpointError(f"llmexport takes '{path}' for an embedding model, because of the '{trap}' in its path. "
                              "Rename or move that folder.")  # fmt: skip
    return path


def _write_converter(scratch):
    """Write a command that calls MNN's converter and nothing else into `scratch`; returns how to call it from there.

    Without one, llmexport imports MNN.tools.mnnconvert, which installs a logging package when it is imported. It calls
    the command through the shell, unquoted, hence no path.
    """
    call = "import sys, _tools; _tools.mnnconvert(['MNNConvert', *sys.argv[1:]])"
    if os.name == "nt":
        command = scratch / "mnnconvert.cmd"
        command.write_text(f'@"{sys.executable}" -c "{call}" %*\n', encoding="utf-8")
        return command.name
    command = scratch / "mnnconvert"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(call)} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return f"./{command.name}"


def _lack(model):
    """What an exported folder lacks, in words; None when nothing.

    llmexport leaves the graph as JSON beside it: each layer says where in llm.mnn.weight its bytes are, as [offset,
    size, size, …], so the largest end is the file's size.
    """
    missing = [name for name in FILES if not (model / name).is_file()]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing from what it made."
    layers = json.loads((model / "llm.mnn.json").read_text(encoding="utf-8"))["oplists"]
    places = [layer["main"]["external"] for layer in layers if (layer.get("main") or {}).get("external")]
    expected, found = max(map(sum, places), default=0), (model / "llm.mnn.weight").stat().st_size
    if not places or found != expected:
        return f"llm.mnn.weight has {found:,} bytes; the {len(places)} layers that refer to it need {expected:,}."
    return None


def _read(path):
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def _plain(log):
    """A log without colours; of a line that was drawn again and again (a bar, a turning wheel) only its last state."""
    log = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", log)
    log = re.sub("[\u2800-\u28ff]", "\r", log)  # the wheel
    lines = (line.rstrip().rsplit("\r", 1)[-1].strip() for line in log.split("\n"))
    return "\n".join(line for line in lines if line)


# --- in the child --------------------------------------------------------------------------------------------


def _try(model):
    """Load an exported model and let it read three tokens. Raises ToolError unless numbers come out."""
    import MNN.llm
    import numpy as np

    llm = MNN.llm.create(str(model / "config.json"))
    llm.set_config({"thread_num": 2, "memory": "high"})
    llm.load()
    logits = np.abs(llm.forward([1, 2, 3]).read())
    print("logits", logits.shape)
    # NaN does not always come out as such: the last layer cuts everything off at the largest float32.
    if not logits.size or not logits.max() < 1e30:
        raise native.ToolError("MNN, loading it, answers three tokens with numbers that are none (NaN, infinity).")
