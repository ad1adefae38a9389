"""Does it fit? The arithmetic of a language model's memory, and what MNN-LLM really takes."""

import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from . import native

SPARE_TOKENS = 64
"""MNN-LLM makes room for so many tokens more than it needs when its key-value cache grows (CPUKVCacheManager.cpp)."""


@dataclass(frozen=True)
class Shape:
    """What a model's memory depends on. parameters: their number, 0 where only a configuration is known.

    layers: transformer blocks; heads: of the queries; kv_heads: of the keys and values, fewer with grouped-query
    attention; head_dim: numbers in each; context: tokens it was trained for.
    """

    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int


def read_shape(folder):
    """The `Shape` of a Hugging Face folder, or of a folder that llm_export made (its parameters are then not counted).

    parameters: elements of all tensors in the *.safetensors files; embeddings that are tied to the output are stored
    once.
    Raises FileNotFoundError without a configuration.
    """
    folder = Path(folder)
    exported = folder / "checkpoint.json"
    config = json.loads((exported if exported.is_file() else folder / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    return Shape(
        parameters=sum(map(_elements, folder.glob("*.safetensors"))),
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        context=config["max_position_embeddings"],
    )


def _elements(file):
    with safe_open(file, framework="numpy") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118


def weight_bytes(parameters, bits, block=None):
    """Bytes of so many weights: parameters · bits / 8, and with blocks 8 more for each.

    block: that many neighbours share a scale and a zero point, both float32, as llm_export stores them: 8 / block bytes
    for each weight. All parameters are counted as if they were rounded; those of the norms, 0.1 %, stay float32.
    """
    return parameters * (bits / 8 + (8 / block if block else 0))


def kv_cache_bytes(shape, tokens, bytes_per_number=4):
    """Bytes of keys and values for so many tokens: 2 · layers · kv_heads · head_dim · bytes · tokens.

    For every token and layer attention keeps one key and one value of head_dim numbers for each of kv_heads (Shazeer
    2019, "Fast transformer decoding", https://arxiv.org/abs/1911.02150; Ainslie et al. 2023, grouped queries,
    https://arxiv.org/abs/2305.13245). MNN keeps them in float32 on a CPU without fp16 arithmetic: bytes_per_number=4.
    """
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * bytes_per_number * tokens


def kv_cache_on_disk(folder, tokens, *, timeout=300):
    """Bytes that MNN-LLM takes for the keys and values of `tokens` tokens, measured: it is told to keep them in files
    (`kvcache_mmap`), and the files are looked at. In a child process.

    It makes room for SPARE_TOKENS more. Raises NativeError.
    """
    return native.call("helpers.llm_size:_cache_files", Path(folder), tokens, timeout=timeout)[0]


def memory_by_context(folder, lengths, *, memory="low", timeout=600):
    """[bytes of physical memory that the child holds after reading lengths[0], lengths[1], … tokens], in one process.

    lengths: ascending; 0 is the memory after loading. The text is read 512 tokens at a time, as ChatModel reads it.
    More than the cache, about twice its size: intermediate results, and what MNN keeps for itself when it grows. Raises
    NativeError.
    """
    return native.call("helpers.llm_size:_memory_by_context", Path(folder), lengths, memory, timeout=timeout)[0]


# --- in the child -------------------------------------------------------------------------------------------


def _load(folder, **settings):
    import MNN.llm

    llm = MNN.llm.create(str(folder / "config.json"))
    llm.set_config({"thread_num": 2, "precision": "high", "reuse_kv": True, **settings})
    llm.load()
    return llm


def _cache_files(folder, tokens):
    with tempfile.TemporaryDirectory(prefix="mnn-course-") as scratch:
        llm = _load(folder, memory="low", kvcache_mmap=True, tmp_path=scratch)
        llm.generate_init()
        llm.forward([1] * tokens).read()
        return sum(file.stat().st_size for file in Path(scratch).iterdir())


def _memory_by_context(folder, lengths, memory):
    import psutil

    from .llm_child import CHUNK

    llm, done, held = _load(folder, memory=memory), 0, []
    for length in lengths:
        while done < length:
            count = min(CHUNK, length - done)
            llm.generate_init()
            llm.forward([1] * count).read()
            done += count
        held.append(psutil.Process().memory_info().rss)
    return held
