import json

import pytest
import tiny_chat

from helpers.llm_size import (
    SPARE_TOKENS,
    Shape,
    kv_cache_bytes,
    kv_cache_on_disk,
    memory_by_context,
    read_shape,
    weight_bytes,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tiny_chat.folders(tmp_path_factory)


@pytest.mark.parametrize("bits, gigabytes", [(32, 28), (16, 14), (8, 7), (4, 3.5)])
def test_seven_billion_weights(bits, gigabytes):
    assert weight_bytes(7e9, bits) == gigabytes * 1e9


def test_blocks_add_a_scale_and_a_zero_point():
    assert weight_bytes(640, 8, 32) == 640 + 20 * 8
    assert weight_bytes(640, 4, 64) == 320 + 10 * 8


def test_cache_of_a_seven_billion_model():
    # Llama 2 7B: 2 · 32 layers · 32 heads · 128 numbers · 2 bytes = half a megabyte for each token.
    assert kv_cache_bytes(Shape(0, 32, 32, 32, 128, 4096), 4096, 2) == 2 * 1024**3


def test_shape_is_read_from_a_checkpoint(folders):
    vocabulary, width, hidden, layers, kv_width = 320, 64, 128, 2, 32
    layer = 2 * width * width + 2 * width * kv_width + 3 * width * hidden + 2 * width
    assert read_shape(folders[0]) == Shape(vocabulary * width + layers * layer + width, layers, 4, 2, 16, 4096)


def test_shape_of_an_exported_folder_has_no_count_of_parameters(folders):
    shape = read_shape(folders[1])
    assert shape.parameters == 0 and (shape.layers, shape.kv_heads, shape.head_dim, shape.context) == (2, 2, 16, 4096)


def test_shape_without_grouped_queries(tmp_path):
    config = {"num_attention_heads": 12, "num_hidden_layers": 3, "hidden_size": 96, "max_position_embeddings": 77}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_shape(tmp_path) == Shape(0, 3, 12, 12, 8, 77)


def test_heads_need_not_share_the_width_among_them(tmp_path):
    config = {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 16, "num_hidden_layers": 3,
              "hidden_size": 96, "max_position_embeddings": 77}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_shape(tmp_path) == Shape(0, 3, 12, 4, 16, 77)


@pytest.mark.parametrize("tokens", [128, 512])
def test_formula_is_what_mnn_keeps_in_its_files(folders, tokens):
    expected = kv_cache_bytes(read_shape(folders[1]), tokens + SPARE_TOKENS)
    assert kv_cache_on_disk(folders[1], tokens) == expected


def test_memory_grows_by_at_least_the_cache(folders):
    held = memory_by_context(folders[1], [0, 1024, 3000])
    shape = read_shape(folders[1])
    for tokens, bytes_held in zip((1024, 3000), held[1:], strict=True):
        assert bytes_held - held[0] > kv_cache_bytes(shape, tokens)
