"""Language models of a hundred thousand parameters with random weights; in child processes, for transformers' sake."""

import json
import struct

import numpy as np

TEXT = "It was 1984. The clocks were striking 13, and the quick brown fox jumped over 25 lazy dogs."
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


def tokenizer():
    """A byte-level BPE tokenizer with 300 tokens, trained on TEXT, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    words.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token=special[1], eos_token=special[2], unk_token=special[0], chat_template=TEMPLATE
    )


def make(folders):
    """Write models with 2 layers of width 64 as Hugging Face folders; folders: {folder: ("llama" or "qwen2", tied)}."""
    for folder, (kind, tied) in folders.items():
        _make(folder, kind, tied)


def _make(folder, kind, tied):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}[kind]
    words = tokenizer()
    shape = config(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    made = model(shape)
    with torch.no_grad():
        for weight in made.parameters():  # larger than the usual start, so that logits differ from one another
            weight.mul_(8) if weight.ndim == 2 else weight
    made.save_pretrained(folder)
    words.save_pretrained(folder)


def reference(folder, ids, text):
    """PyTorch's logits after the last token, float32 [vocabulary], and the ids of the tokens of `text`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1].numpy()
    return logits, AutoTokenizer.from_pretrained(folder).encode(text, add_special_tokens=False)


def answer(folder, ids, text):
    """What reference() returns, from MNN; it does not round activations here."""
    import MNN.llm

    llm = MNN.llm.create(str(folder / "config.json"))
    llm.set_config({"memory": "high", "precision": "high", "thread_num": 1})
    llm.load()
    return np.array(llm.forward(ids).read()).reshape(-1).astype(np.float32), llm.tokenizer_encode(text)


# --- a folder that looks like one, without any library -------------------------------------------------------


def write_folder(folder, **config):
    """A Hugging Face folder whose weights are one tensor of four zeros: whole, as far as its files tell."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    write_safetensors(folder / "model.safetensors")
    return folder


def write_safetensors(path):
    header = json.dumps({
        "__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    }).encode()  # fmt: skip
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))


# --- a GGUF file ---------------------------------------------------------------------------------------------


def write_gguf(path):
    """A Llama of one layer as a GGUF file, matrices in Q4_1. In a child process; returns {Hugging Face name: weights}.

    Q4_1 keeps 32 neighbours as a scale, a minimum (both float16) and 4 bits each: w = scale * q + minimum. The weights
    are made such, so the file holds just them. Rows of q and k are stored in another order, as llama.cpp rotates pairs
    of neighbours where Hugging Face rotates the two halves of a head.
    """
    import gguf

    rng = np.random.default_rng(3)
    width, hidden, heads, kv_heads, vocabulary = 64, 128, 2, 1, 300
    words = json.loads(tokenizer().backend_tokenizer.to_str())["model"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(hidden)
    writer.add_rope_dimension_count(width // heads)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = sorted(words["vocab"], key=words["vocab"].get)
    tokens += [f"<unused {n}>" for n in range(vocabulary - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in words["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    weights = {}

    def add(name, here, shape, heads=None):
        if len(shape) == 1:
            weights[name] = rng.normal(1, 0.1, shape).astype(np.float32)
            writer.add_tensor(here, weights[name])
            return
        blocks = (shape[0], shape[1] // 32)
        scale, minimum = (rng.uniform(*limits, blocks).astype(np.float16) for limits in ((0.01, 0.02), (-0.3, -0.1)))
        quants = rng.integers(0, 16, (*blocks, 32), dtype=np.uint8)
        head = [part[..., None].view(np.uint8) for part in (scale, minimum)]
        stored = np.concatenate([*head, quants[..., :16] | quants[..., 16:] << 4], axis=-1).reshape(shape[0], -1)
        rows = scale[..., None].astype(np.float32) * quants + minimum[..., None].astype(np.float32)
        rows = rows.reshape(shape)
        if heads:  # row 2 i of a head in the file is row i of its first half, row 2 i + 1 that of its second
            order = np.arange(shape[0]).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
            original = np.empty_like(rows)
            original[order] = rows
            rows = original
        weights[name] = rows
        writer.add_tensor(here, stored, raw_dtype=gguf.GGMLQuantizationType.Q4_1)

    layer, block, per_head = "model.layers.0", "blk.0", width // heads
    add("model.embed_tokens.weight", "token_embd.weight", (vocabulary, width))
    add("model.norm.weight", "output_norm.weight", (width,))
    add(f"{layer}.input_layernorm.weight", f"{block}.attn_norm.weight", (width,))
    add(f"{layer}.post_attention_layernorm.weight", f"{block}.ffn_norm.weight", (width,))
    add(f"{layer}.self_attn.q_proj.weight", f"{block}.attn_q.weight", (width, width), heads)
    add(f"{layer}.self_attn.k_proj.weight", f"{block}.attn_k.weight", (kv_heads * per_head, width), kv_heads)
    add(f"{layer}.self_attn.v_proj.weight", f"{block}.attn_v.weight", (kv_heads * per_head, width))
    add(f"{layer}.self_attn.o_proj.weight", f"{block}.attn_output.weight", (width, width))
    add(f"{layer}.mlp.gate_proj.weight", f"{block}.ffn_gate.weight", (hidden, width))
    add(f"{layer}.mlp.up_proj.weight", f"{block}.ffn_up.weight", (hidden, width))
    add(f"{layer}.mlp.down_proj.weight", f"{block}.ffn_down.weight", (width, hidden))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def read(folder, text):
    """A Hugging Face folder's weights as transformers sees them, and of its tokenizer: ids of `text`, chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    return weights, words.convert_ids_to_tokens(words.encode(text)), words.chat_template
