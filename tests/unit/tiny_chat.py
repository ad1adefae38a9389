"""A language model of a hundred thousand random weights to talk to, exported for MNN-LLM once for all tests."""

import functools
import os
import tempfile
from pathlib import Path

import pytest
from tiny_llm import tokenizer

from helpers import llm_export, native

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nBe kind."
    "<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 4096


def folders(tmp_path_factory):
    """(Hugging Face folder, MNN-LLM folder with 8-bit weights)."""
    return _folders(tmp_path_factory.getbasetemp())


@functools.cache
def _folders(base):
    folder = Path(tempfile.mkdtemp(dir=base)) / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.path.dirname(__file__))
        native.call("tiny_chat:make", folder)
        return folder, llm_export.export(folder, bits=8, block=32, folder=folder.parent)


def oracle(folder, ids, conversations, texts, warps):
    """What transformers makes of all this, computed where it may be imported: see _oracle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.path.dirname(__file__))
        return native.call("tiny_chat:_oracle", folder, ids, conversations, texts, warps)[0]


# --- in the child --------------------------------------------------------------------------------------------


def make(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    words = tokenizer()
    words.chat_template = TEMPLATE
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, tie_word_embeddings=True, bos_token_id=1,
        eos_token_id=2,
    ))  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():  # larger than the usual start, so that logits differ from one another
            weight.mul_(6) if weight.ndim == 2 else weight
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def _oracle(folder, ids, conversations, texts, warps):
    """(logits float32 [len(ids), vocab], ids of the conversations, ids of the texts, what _warped says)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    talks = [words.apply_chat_template(talk, add_generation_prompt=True, return_dict=False) for talk in conversations]
    return logits, talks, [words.encode(text, add_special_tokens=False) for text in texts], [_warped(*w) for w in warps]


def _warped(logits, ids, temperature, top_k, top_p, penalty):
    """Probabilities of the next token by transformers' own processors, in its order."""
    import torch
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    steps = LogitsProcessorList([
        RepetitionPenaltyLogitsProcessor(penalty), TemperatureLogitsWarper(temperature), TopKLogitsWarper(top_k),
        TopPLogitsWarper(top_p),
    ])  # fmt: skip
    return steps(torch.tensor([ids]), torch.tensor(logits)[None]).softmax(-1)[0].numpy()
