import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tiny_chat

from helpers import llm_prompts, native
from helpers.llm_quality import cosine, evaluate, kl, perplexity, reference, table, top1

PROMPTS = ("What jumped over the dogs?", "It was 1984.", "fox", "How many dogs?")
TEXT = "It was 1984. The clocks were striking 13, and the fox was quick."


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tiny_chat.folders(tmp_path_factory)


@pytest.fixture(scope="module")
def original(folders):
    return reference(folders[0], prompts=PROMPTS, text=TEXT, folder=folders[0].parent)


@pytest.fixture(scope="module")
def high(folders, original):
    return evaluate(folders[1], original)


# --- figures ---


def test_kl_of_two_coins():
    half, quarter = np.log([0.5, 0.5]), np.log([0.25, 0.75])
    assert kl(half, quarter) == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    assert kl(quarter, half) == pytest.approx(0.25 * np.log(0.5) + 0.75 * np.log(1.5))


def test_kl_is_zero_for_the_same_probabilities_and_per_row():
    logits = np.random.default_rng(0).normal(size=(3, 50))
    other = logits + [[5.0], [0.0], [-900.0]]  # a constant changes no probability
    other[1, 7] += 1
    found = kl(logits, other)
    assert found.shape == (3,) and found[0] < 1e-12 and found[1] > 0 and found[2] < 1e-12 and (found >= 0).all()


def test_perplexity_of_a_fair_die_is_six():
    assert perplexity(np.zeros((9, 6)), [0, 5, 2, 3, 3, 1, 0, 4, 2]) == pytest.approx(6)


def test_perplexity_judges_each_token_by_the_row_before_it():
    logits = np.log([[0.1, 0.8, 0.1], [0.5, 0.25, 0.25], [1.0, 1.0, 1.0]])  # the last row judges nothing
    assert perplexity(logits, [2, 1, 0]) == pytest.approx((1 / 0.8 / 0.5) ** 0.5)


def test_cosine_of_known_vectors():
    np.testing.assert_allclose(cosine([[1, 0], [1, 1], [2, 4]], [[0, 3], [1, 0], [1, 2]]), [0, 0.5**0.5, 1])


def test_top1_is_the_share_of_rows_with_the_same_largest():
    assert top1([[1, 2], [3, 1], [0, 1], [5, 4]], [[0, 1], [1, 9], [7, 8], [9, 0]]) == 0.75


# --- the set ---


def test_there_are_prompts_enough_and_all_differ():
    assert len(set(llm_prompts.PROMPTS)) == len(llm_prompts.PROMPTS) >= 20
    assert 200 < len(llm_prompts.TEXT.split()) < 400


# --- original against MNN ---


def test_original_is_what_transformers_says(folders, original):
    ids = original.prompt_ids[1]
    logits, talks, texts, _ = tiny_chat.oracle(
        folders[0], ids, [[{"role": "user", "content": prompt}] for prompt in PROMPTS], [TEXT], []
    )
    assert list(original.prompt_ids) == talks and original.text_ids == tuple(texts[0])
    np.testing.assert_allclose(original.logits[1], logits[-1], atol=1e-4)
    assert original.logits.shape == (4, 320) and original.text_logits.shape == (len(texts[0]), 320)
    assert original.bits == 32


def test_original_is_kept_on_disk(folders, original, monkeypatch, capsys):
    def refuse(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(native, "call", refuse)
    again = reference(folders[0], prompts=PROMPTS, text=TEXT, folder=folders[0].parent)
    np.testing.assert_array_equal(again.text_logits, original.text_logits)
    assert again.prompt_ids == original.prompt_ids and "reused" in capsys.readouterr().out
    for changed in ({"prompts": PROMPTS[:2]}, {"text": TEXT + "!"}):
        with pytest.raises(AssertionError, match="computed again"):
            reference(folders[0], **{"prompts": PROMPTS, "text": TEXT, "folder": folders[0].parent, **changed})


def test_eight_bits_with_float_activations_are_nearly_the_original(original, high):
    assert high.cosine > 0.999 and high.worst_cosine > 0.995 and high.kl < 0.01 and high.top1 >= 0.75
    best = perplexity(original.text_logits, original.text_ids)
    assert high.perplexity == pytest.approx(best, rel=0.02) and high.text_top1 > 0.8


def test_row_says_what_was_run(folders, high):
    assert (high.bits, high.block, high.memory, high.name) == (8, 32, "high", "8 bits, memory high")
    assert high.bytes == (folders[1] / "llm.mnn.weight").stat().st_size
    assert 1e7 < high.peak_bytes < 5e8 and high.prefill_speed > 0 and high.decode_speed > 0


def test_rounded_activations_are_further_away_and_finer_scales_nearer(folders, original, high):
    low = evaluate(folders[1], original, memory="low")
    fine = evaluate(folders[1], original, memory="low", activation_scales=2)
    assert low.text_kl > 1.5 * high.text_kl and fine.text_kl < low.text_kl
    assert fine.name == "8 bits, memory low, block scales"


def test_bits_are_read_from_the_export(folders, original, tmp_path):
    other = shutil.copytree(folders[1], tmp_path / "other")
    record = json.loads((other / "export_args.json").read_text())
    (other / "export_args.json").write_text(json.dumps({**record, "quant_bit": 4, "quant_block": 64}))
    row = evaluate(other, original)
    assert (row.bits, row.block) == (4, 64)


def test_other_tokens_are_not_compared(folders, original):
    wrong = replace(original, prompt_ids=(original.prompt_ids[1], *original.prompt_ids[1:]))
    with pytest.raises(ValueError, match="other tokens"):
        evaluate(folders[1], wrong)


def test_table_has_a_line_for_each(original, high):
    lines = table(original, [high, replace(high, name="another", top1=0.25)]).splitlines()
    assert len(lines) == 4 and "1 of 4" in lines[3]
    assert f"{perplexity(original.text_logits, original.text_ids):.2f}" in lines[1]
