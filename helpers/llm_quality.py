"""What is lost between a language model and its quantized form? Measured over many prompts and on a text.

    original = reference(checkpoint)                       # transformers, float32; kept on disk
    rows = [evaluate(w8, original), evaluate(w8, original, memory="low"), …]
    print(table(original, rows))
"""

import hashlib
import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import bench, made, native
from .llm import ChatModel
from .llm_prompts import PROMPTS, TEXT
from .llm_sampling import log_softmax
from .paths import LLM_CACHE, atomic_write, short

SPEED_PROMPT = f"Summarize this text in three sentences.\n\n{TEXT}"


@dataclass(frozen=True, eq=False)
class Original:
    """What the model says before any quantization, computed by transformers in float32.

    prompts: texts; prompt_ids: the token ids of each in the chat template; logits: float32 [prompts, vocab], of the
    first token of each answer. text_ids: of the text; text_logits: float32 [tokens, vocab], row i after
    text_ids[: i + 1]. bytes: of the checkpoint's files, whose numbers have `bits` bits.
    """

    name: str
    prompts: tuple
    prompt_ids: tuple
    logits: np.ndarray
    text_ids: tuple
    text_logits: np.ndarray
    bytes: int
    bits: int


@dataclass(frozen=True)
class Quality:
    """One way to run the model, against the original.

    top1: share of prompts where the first token of the answer is the same. cosine, worst_cosine: of the logits, mean
    and minimum over the prompts. kl: mean over the prompts of KL(original ‖ this) in nats. perplexity: of the text.
    text_top1, text_kl: the same over all positions of the text. bytes: of the weight file; peak_bytes: the most memory
    of the child that answered one prompt of about 400 tokens; prefill_speed, decode_speed: tokens/s in doing so.
    """

    name: str
    bits: int
    block: int
    memory: str
    activation_scales: int
    top1: float
    cosine: float
    worst_cosine: float
    kl: float
    perplexity: float
    text_top1: float
    text_kl: float
    bytes: int
    peak_bytes: int
    prefill_speed: float
    decode_speed: float


# --- figures ------------------------------------------------------------------------------------------------


def kl(original, other):
    """KL(p ‖ q) = Σ p · (log p − log q) over the last axis, in nats, for p, q the softmax of two arrays of logits.

    How many nats more it takes, on average, to write down what the original says with the other's probabilities
    (Kullback and Leibler 1951). 0 where they are the same, never negative; not symmetric.
    """
    p, q = log_softmax(original), log_softmax(other)
    return np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0)  # rounding makes it -1e-17


def cosine(original, other):
    """Cosine of the angle between two vectors of logits, over the last axis: Σ ab / sqrt(Σ a² · Σ b²), float64.

    Blind to a factor, and not to a constant that is added to all logits and changes no probability.
    """
    a, b = np.asarray(original, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return (a * b).sum(axis=-1) / np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))


def top1(original, other):
    """Share of rows with the same largest logit."""
    return float((np.argmax(original, axis=-1) == np.argmax(other, axis=-1)).mean())


def perplexity(logits, ids):
    """exp(−(1/(n−1)) Σ log p(ids[i+1] | ids[: i+1])): among how many equally likely tokens the model seems to choose.

    logits: [n, vocab], row i after ids[: i + 1], so that row i judges ids[i + 1] (teacher forcing); the first token is
    not judged. (Jelinek, Mercer, Bahl, Baker 1977, "Perplexity: a measure of the difficulty of speech recognition
    tasks".)
    """
    said = log_softmax(logits[:-1])[np.arange(len(ids) - 1), ids[1:]]
    return float(np.exp(-said.mean()))


# --- the two sides ------------------------------------------------------------------------------------------


def reference(checkpoint, *, prompts=PROMPTS, text=TEXT, folder=LLM_CACHE, timeout=600):
    """The `Original` of a Hugging Face folder: read from `folder`/<name>-original or computed, and says which.

    Computed by transformers in float32 on two threads, in a child process: about 15 s for 135 million parameters.
    Raises NativeError when that crashes or takes longer than `timeout` seconds.
    """
    checkpoint = Path(checkpoint).resolve()
    path = Path(folder) / f"{checkpoint.name}-original"
    asked = hashlib.sha256(repr((tuple(prompts), text)).encode()).hexdigest()
    versions = [importlib.metadata.version(name) for name in ("transformers", "torch")]
    made_from = {"checkpoint": made.fingerprint(checkpoint), "asked": asked, "versions": versions}
    if made.fits(path, made_from):
        print(f"{short(path)}: reused ({made.size(path):,} bytes)")
    else:
        with atomic_write(path) as temporary:
            temporary.mkdir()
            target = temporary / "original.npz"
            native.call("helpers.llm_quality:_compute", checkpoint, tuple(prompts), text, target, timeout=timeout)
            made.seal(temporary, made_from, [target.name])
        print(f"{short(path)}: made from {short(checkpoint)} ({made.size(path):,} bytes)")
    with np.load(path / "original.npz") as arrays:
        lengths = np.cumsum(arrays["lengths"])[:-1]
        return Original(
            checkpoint.name, tuple(prompts), tuple(ids.tolist() for ids in np.split(arrays["prompt_ids"], lengths)),
            arrays["logits"], tuple(arrays["text_ids"].tolist()), arrays["text_logits"],
            int(arrays["bytes"]), int(arrays["bits"]),
        )  # fmt: skip


def evaluate(folder, original, *, memory="high", activation_scales=0, threads=2):
    """The `Quality` of an exported folder (llm_export) run like this. About 10 s for 135 million parameters.

    Raises ValueError when the engine cuts a prompt or the text into other tokens than transformers: then the logits
    cannot be compared.
    """
    folder = Path(folder)
    made_with = json.loads((folder / "export_args.json").read_text(encoding="utf-8"))
    bits, block = made_with["quant_bit"], made_with["quant_block"]
    with ChatModel(folder, memory=memory, activation_scales=activation_scales, threads=threads) as chat:
        stats = chat(SPEED_PROMPT, max_new_tokens=16).stats  # first, so that the peak is that of a chat
        for prompt, ids in zip(original.prompts, original.prompt_ids, strict=True):
            if chat.prompt_ids(prompt) != ids:
                raise ValueError(f"{short(folder)} makes other tokens than {original.name} of the prompt {prompt!r}.")
        logits = np.stack([chat.logits(prompt) for prompt in original.prompts])
        text_logits = chat.all_logits(original.text_ids)
    angles = cosine(original.logits, logits)
    finely = ", block scales" if memory == "low" and activation_scales == 2 else ""
    return Quality(
        name=f"{bits} bits, memory {memory}{finely}",
        bits=bits, block=block, memory=memory, activation_scales=activation_scales,
        top1=top1(original.logits, logits), cosine=float(angles.mean()), worst_cosine=float(angles.min()),
        kl=float(kl(original.logits, logits).mean()), perplexity=perplexity(text_logits, original.text_ids),
        text_top1=top1(original.text_logits, text_logits), text_kl=float(kl(original.text_logits, text_logits).mean()),
        bytes=(folder / "llm.mnn.weight").stat().st_size, peak_bytes=stats.peak_bytes,
        prefill_speed=stats.prefill_speed, decode_speed=stats.decode_speed,
    )  # fmt: skip


def table(original, rows):
    """The rows under one another as text, the original's perplexity and size first. Speeds are tokens per second."""
    header = ("", "same 1st token", "cosine", "KL (nats)", "perplexity", "file", "peak", "reads", "writes")
    first = (
        f"original, {original.bits} bits", "", "", "", f"{perplexity(original.text_logits, original.text_ids):.2f}",
        f"{original.bytes / 1e6:.0f} MB", "", "", "",
    )  # fmt: skip
    count = len(original.prompts)
    return bench.table(header, [first, *(
        (row.name, f"{round(row.top1 * count)} of {count}", f"{row.cosine:.5f}", f"{row.kl:.5f}",
         f"{row.perplexity:.2f}", f"{row.bytes / 1e6:.0f} MB", f"{row.peak_bytes / 1e6:.0f} MB",
         f"{row.prefill_speed:.0f}/s", f"{row.decode_speed:.0f}/s")
        for row in rows
    )])  # fmt: skip


# --- in the child -------------------------------------------------------------------------------------------


def _compute(checkpoint, prompts, text, target):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(2)
    words = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    size = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))

    def logits(ids, rows):
        with torch.inference_mode():
            return model(torch.tensor([ids]), logits_to_keep=rows).logits[0].numpy()

    prompt_ids = [
        words.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False)
        for prompt in prompts
    ]
    text_ids = words.encode(text, add_special_tokens=False)
    np.savez(
        target, prompt_ids=np.concatenate(prompt_ids), lengths=[len(ids) for ids in prompt_ids],
        logits=np.stack([logits(ids, 1)[0] for ids in prompt_ids]), text_ids=text_ids,
        text_logits=logits(text_ids, 0), bytes=size, bits=round(8 * size / model.num_parameters()),
    )  # fmt: skip
