import copy
import gc
import os
import pickle
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import tiny_chat

from helpers import llm_child, native
from helpers.llm import ChatModel, ContextWindowError
from helpers.llm_sampling import options, probabilities
from helpers.native import NativeError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills children with signals")

QUESTION = "What jumped over 25 lazy dogs?"
TALK = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi \"you\" {{ x }}"},
    {"role": "assistant", "content": " Yes,\nfox "}, {"role": "user", "content": "ü 🎉"},
]  # fmt: skip
TEXTS = ["the quick brown fox", "  two  spaces\n\tand a tab", "Grüße, 25 €",
         "🎉 👨‍👩‍👧 🇩🇪", "def f(x):\n    return x**2", "日本語"]
WARPS = [
    dict(temperature=0.7, top_k=40, top_p=0.9, repetition_penalty=1.3),
    dict(temperature=1.5, top_k=3, top_p=1.0, repetition_penalty=1.0),
    dict(temperature=1.0, top_k=50, top_p=0.2, repetition_penalty=0.8),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tiny_chat.folders(tmp_path_factory)


@pytest.fixture(scope="module")
def folder(folders):
    return folders[1]


@pytest.fixture(scope="module")
def some_logits():
    return np.random.default_rng(5).normal(scale=3, size=200).astype(np.float32)


IDS = list(range(3, 60))


@pytest.fixture(scope="module")
def oracle(folders, some_logits):
    warps = [
        (some_logits, [7, 7, 30, 99], w["temperature"], w["top_k"], w["top_p"], w["repetition_penalty"]) for w in WARPS
    ]
    logits, talks, texts, warped = tiny_chat.oracle(
        folders[0], IDS, [[{"role": "user", "content": QUESTION}], TALK], TEXTS, warps
    )
    return SimpleNamespace(logits=logits, talks=talks, texts=texts, warped=warped)


@pytest.fixture(scope="module")
def shared(folder):
    with ChatModel(folder, threads=1) as chat:
        yield chat


@pytest.fixture
def chat(shared):
    """A ChatModel without a conversation, shared by the tests that do it no harm."""
    shared.reset()
    return shared


def gone(pid, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


# --- the model and its tokens ---


def test_logits_are_those_of_transformers(chat, oracle):
    found = chat.all_logits(IDS)
    assert found.shape == oracle.logits.shape and found.dtype == np.float32
    a, b = found.astype(float), oracle.logits.astype(float)
    assert ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min() > 0.999


def test_first_logits_are_the_last_row_of_all_logits(chat):
    found = chat.logits(QUESTION)
    assert found.dtype == np.float32 and found.shape == (320,)
    np.testing.assert_allclose(found, chat.all_logits(chat.prompt_ids(QUESTION))[-1], atol=1e-4)


def test_prompt_is_put_into_the_chat_template(chat, oracle):
    assert chat.prompt_ids(QUESTION) == oracle.talks[0]


def test_whole_conversation_is_put_into_the_chat_template(chat, oracle, monkeypatch):
    monkeypatch.setattr(chat, "messages", TALK[:-1])
    assert chat(TALK[-1]["content"], max_new_tokens=1).stats.prompt_tokens == len(oracle.talks[1])
    assert chat._ask("prompt_ids", TALK) == oracle.talks[1]


def test_system_prompt_replaces_the_template_s_own(folder, oracle):
    with ChatModel(folder, system=TALK[0]["content"]) as chat:
        assert chat.prompt_ids(QUESTION) != oracle.talks[0]
        chat.messages += TALK[1:-1]
        assert chat(TALK[-1]["content"], max_new_tokens=1).stats.prompt_tokens == len(oracle.talks[1])
        chat.reset()
        assert chat.messages == TALK[:1]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_tokens_are_those_of_transformers(chat, oracle, number):
    assert chat.encode(TEXTS[number]) == oracle.texts[number]


# --- talking ---


def test_stream_gives_the_same_text_in_pieces(chat):
    whole = chat(QUESTION, max_new_tokens=30)
    chat.reset()
    pieces = list(chat.stream(QUESTION, max_new_tokens=30))
    assert "".join(pieces) == whole == chat.reply and len(pieces) > 10 and all(pieces)


def test_answer_begins_with_the_most_likely_token(chat):
    compared = 0
    for question in TALK[1]["content"].split() + TEXTS:
        best = int(chat.logits(question).argmax())
        chat.reset()
        answer = chat(question, max_new_tokens=1)
        if "\ufffd" not in answer:  # half a character has no text to be compared
            assert chat.encode(answer) == [best]
            compared += 1
    assert compared > 1


def test_reset_brings_the_first_answer_back(chat):
    first = chat(QUESTION, max_new_tokens=20)
    second = chat(QUESTION, max_new_tokens=20)
    chat.reset()
    again = chat(QUESTION, max_new_tokens=20)
    assert again == first and second.stats.prompt_tokens > first.stats.prompt_tokens and again.stats.cached_tokens == 0


def test_reset_in_the_middle_of_an_answer_forgets_that_too(chat):
    stream = chat.stream(QUESTION, max_new_tokens=30)
    next(stream)
    chat.reset()
    list(stream)
    assert chat.messages == []


def test_turns_stay_and_what_was_read_is_not_read_again(chat, folder):
    chat("It was 1984.", max_new_tokens=20)
    talk = [dict(message) for message in chat.messages]
    second = chat(QUESTION, max_new_tokens=20)
    assert [message["role"] for message in chat.messages] == ["user", "assistant"] * 2
    assert second.stats.cached_tokens > 20
    with ChatModel(folder, threads=1) as other:  # which reads the same conversation from the start
        other.messages = talk
        fresh = other(QUESTION, max_new_tokens=20)
    assert fresh == second and fresh.stats.cached_tokens == 0
    assert fresh.stats.prompt_tokens == second.stats.prompt_tokens


@pytest.mark.parametrize("look", [lambda chat: chat.logits("fox"), lambda chat: chat.all_logits([5, 6, 7])])
def test_looking_inside_leaves_the_conversation_as_it_is(chat, look):
    chat("It was 1984.", max_new_tokens=20)
    expected = chat("And then?", max_new_tokens=20)
    chat.reset()
    chat("It was 1984.", max_new_tokens=20)
    look(chat)
    assert chat("And then?", max_new_tokens=20) == expected


def test_leaving_the_loop_ends_the_answer_and_keeps_what_was_said(chat):
    said = []
    for piece in chat.stream(QUESTION, max_new_tokens=1000):
        said.append(piece)
        if len(said) == 5:
            break
    gc.collect()
    assert chat.reply == "".join(said) and chat.reply.stats.finish == "stopped"
    assert chat.reply.stats.generated_tokens < 900
    assert chat.messages[-1] == {"role": "assistant", "content": "".join(said)}


def test_stop_from_another_thread_ends_the_answer(chat):
    stream = chat.stream(QUESTION, max_new_tokens=1500)
    first = next(stream)
    threading.Thread(target=chat.stop).start()
    rest = "".join(stream)
    assert chat.reply == first + rest and chat.reply.stats.finish == "stopped"
    assert chat.reply.stats.generated_tokens < 1400


def test_stop_without_an_answer_does_not_end_the_next(chat):
    chat.stop()
    assert chat(QUESTION, max_new_tokens=20).stats.finish == "length"


def test_interrupted_cell_ends_the_answer(chat):
    stream = chat.stream(QUESTION, max_new_tokens=1500)
    first = next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt)
    assert chat.reply == first and chat.reply.stats.finish == "stopped"


def test_new_question_takes_the_place_of_an_unfinished_answer(chat):
    expected = chat("fox", max_new_tokens=10)
    chat.reset()
    stream = chat.stream(QUESTION, max_new_tokens=1500)
    next(stream)
    assert chat("fox", max_new_tokens=10) == expected
    list(stream)
    assert [message["content"] for message in chat.messages] == ["fox", expected] and chat.reply == expected


def test_same_question_again_takes_the_place_of_an_unfinished_answer(chat):
    expected = chat(QUESTION, max_new_tokens=10)
    chat.reset()
    stream = chat.stream(QUESTION, max_new_tokens=1500)
    next(stream)
    again = chat(QUESTION, max_new_tokens=10)
    assert again == expected and again.stats.cached_tokens == again.stats.prompt_tokens - 1


def test_conversation_that_begins_otherwise_is_read_from_its_start(chat):
    def answer():
        return "".join(chat._request("generate", [9, 8, 7], 100, options(max_new_tokens=20)).pieces())

    expected = answer()
    chat("fox", max_new_tokens=5)  # fills the cache
    assert answer() == expected


def test_stats_add_up(chat):
    start = time.perf_counter()
    stats = chat(QUESTION, max_new_tokens=25).stats
    took = time.perf_counter() - start
    assert stats.prompt_tokens == len(chat.prompt_ids(QUESTION)) and stats.cached_tokens == 0
    assert stats.generated_tokens == 25 and stats.finish == "length"
    assert 0 < stats.prefill_seconds <= stats.first_token < took
    assert 0 < stats.decode_seconds < took
    assert stats.prefill_speed == stats.prompt_tokens / stats.prefill_seconds
    assert stats.decode_speed == pytest.approx(24 / stats.decode_seconds)
    held = psutil.Process(chat.pid).memory_info().rss
    assert 0.9 * held < stats.peak_bytes < held + 3e8
    assert "25 tokens out" in str(stats)


def test_first_token_comes_before_the_others(chat):
    start = time.perf_counter()
    stats = chat(QUESTION, max_new_tokens=600).stats
    assert stats.first_token < time.perf_counter() - start - stats.decode_seconds / 2


def test_reply_can_be_copied(chat):
    reply = chat("fox", max_new_tokens=3)
    for twin in (pickle.loads(pickle.dumps(reply)), copy.deepcopy(reply)):
        assert twin == reply and twin.stats == reply.stats


def test_nothing_is_printed(folder, capfd):
    with ChatModel(folder) as chat:
        chat(QUESTION, max_new_tokens=5)
    assert capfd.readouterr() == ("", "")


def test_folder_is_left_alone(folder, chat):
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    chat(QUESTION, max_new_tokens=5)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


# --- the window ---


def test_too_long_a_question_is_refused_with_the_numbers(folder):
    with ChatModel(folder, window=60) as chat:
        first = chat("fox", max_new_tokens=3)
        talk = list(chat.messages)
        with pytest.raises(ContextWindowError, match=r"the window is 60.*reset\(\).*trained for 4,096") as caught:
            chat(QUESTION * 3)
        needed = len(chat._ask("prompt_ids", [*talk, {"role": "user", "content": QUESTION * 3}])) + 1
        assert (caught.value.tokens, caught.value.window) == (needed, 60) and chat.messages == talk
        chat.reset()
        assert chat("fox", max_new_tokens=3) == first


def test_answer_ends_where_the_window_does(folder):
    with ChatModel(folder, window=60) as chat:
        stats = chat("fox", max_new_tokens=1000).stats
        assert stats.finish == "window" and stats.prompt_tokens + stats.generated_tokens == 60
        with pytest.raises(ContextWindowError):
            chat("fox")


@pytest.mark.parametrize("window", [0, 4097])
def test_window_is_at_most_what_the_model_was_trained_for(folder, window):
    with pytest.raises(ValueError, match=r"trained for 1 to 4,096"):
        ChatModel(folder, window=window)


# --- what goes wrong ---


def test_child_killed_between_questions(folder):
    with ChatModel(folder) as chat:
        first = chat(QUESTION, max_new_tokens=5)
        talk = list(chat.messages)
        os.kill(chat.pid, signal.SIGKILL)
        with pytest.raises(NativeError, match="killed by SIGKILL") as caught:
            chat("fox")
        assert caught.value.returncode == -signal.SIGKILL and "The device supports" in caught.value.log
        assert chat.messages == talk
        second = chat("fox", max_new_tokens=5)  # a new child, which has to read the conversation again
        assert second.stats.cached_tokens == 0 and second.stats.prompt_tokens > first.stats.prompt_tokens


def test_child_that_crashes_in_an_answer(folder):
    with ChatModel(folder) as chat:
        stream = chat.stream(QUESTION, max_new_tokens=1500)
        next(stream)
        os.kill(chat.pid, signal.SIGSEGV)
        with pytest.raises(NativeError, match=r"generate.*SIGSEGV"):
            list(stream)
        assert chat.messages == [] and chat("fox", max_new_tokens=5)


def test_child_that_does_not_answer_in_time(folder):
    with ChatModel(folder) as chat:
        pid, chat.timeout = chat.pid, 0.5
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(NativeError, match=r"stopped after 0\.5 s.*timeout="):
            chat("fox")
        assert time.monotonic() - start < 30 and gone(pid)
        chat.timeout = 60
        assert chat("fox", max_new_tokens=5)


def test_model_that_cannot_be_loaded(folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "tokenizer.mtok").write_bytes(b"")
    with pytest.raises(NativeError, match="last words"):
        ChatModel(broken)("fox")


def test_incomplete_folder_is_named(folder, tmp_path):
    partial = shutil.copytree(folder, tmp_path / "partial")
    (partial / "llm.mnn.weight").unlink()
    with pytest.raises(FileNotFoundError, match=r"partial.*llm\.mnn\.weight missing.*export\(\)"):
        ChatModel(partial)


@pytest.mark.parametrize("keyword", [{"memory": "medium"}, {"activation_scales": 7}])
def test_unknown_setting_is_refused(folder, keyword):
    with pytest.raises(ValueError, match="expected one of"):
        ChatModel(folder, **keyword)


def test_text_that_mnn_would_cut_off_is_refused(chat):
    with pytest.raises(ValueError, match="NUL"):
        chat("a\0b")
    with pytest.raises(TypeError, match="found int"):
        chat(5)


def test_wrong_option_is_refused_before_anything_is_asked(chat):
    with pytest.raises(ValueError, match="do_sample=True"):
        chat.stream(QUESTION, temperature=0.5)
    with pytest.raises(TypeError, match="top_q"):
        chat.stream(QUESTION, top_q=3)
    assert chat.messages == []


def test_python_error_in_the_child_arrives_here_and_the_child_lives_on(chat):
    pid = chat.pid
    with pytest.raises(TypeError):
        chat._ask("encode", "one", "too many")
    assert chat("fox", max_new_tokens=3) and chat.pid == pid


# --- processes ---


def test_two_models_at_once(folder, chat):
    expected = list(chat.stream(QUESTION, max_new_tokens=20))
    chat.reset()
    with ChatModel(folder, memory="low") as other:
        assert other.pid != chat.pid
        stream, others = chat.stream(QUESTION, max_new_tokens=20), other.stream("fox", max_new_tokens=1000)
        found = [piece for piece in stream if next(others) or True]
        assert found == expected


def test_memory_low_rounds_activations(folder, chat):
    with ChatModel(folder, memory="low") as low, ChatModel(folder, memory="low", activation_scales=2) as finer:
        rounded, otherwise, exact = low.all_logits(IDS), finer.all_logits(IDS), chat.all_logits(IDS)
    assert np.abs(rounded - otherwise).max() > 1e-3
    assert np.abs(rounded - exact).max() > 1e-3 and np.corrcoef(rounded.ravel(), exact.ravel())[0, 1] > 0.9


def test_close_ends_the_child(folder):
    chat = ChatModel(folder)
    pid = chat.pid
    chat.close()
    chat.close()
    assert gone(pid, 2)
    with pytest.raises(RuntimeError, match="closed"):
        chat("fox")


def test_close_in_the_middle_of_an_answer(folder):
    with ChatModel(folder) as chat:
        stream = chat.stream(QUESTION, max_new_tokens=1500)
        next(stream)
    stream.close()
    assert chat.messages == []


def test_forgotten_model_ends_its_child(folder):
    chat = ChatModel(folder)
    pid = chat.pid
    del chat
    gc.collect()
    assert gone(pid, 3)


@pytest.mark.parametrize("ending", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_no_child_outlives_the_kernel(folder, ending):
    source = f"""
import os, sys
from helpers.llm import ChatModel
chat = ChatModel(sys.argv[1])
print(chat.pid, flush=True)
stream = chat.stream("fox", max_new_tokens=1500)
next(stream)
{ending}
"""
    finished = native.run_snippet(source, folder)
    assert gone(int(finished.log.split()[0])), finished.log


# --- sampling ---


@pytest.mark.parametrize("number", range(len(WARPS)))
def test_probabilities_are_those_of_transformers(oracle, some_logits, number):
    chosen = options(do_sample=True, **WARPS[number])
    found = probabilities(some_logits, [7, 7, 30, 99], **chosen)
    np.testing.assert_allclose(found, oracle.warped[number], atol=1e-6)


def test_without_sampling_the_most_likely_token_is_certain(some_logits):
    found = probabilities(some_logits, [1], **options())
    assert found.argmax() == some_logits.argmax() and found.sum() == found.max() == 1


def test_seed_repeats_an_answer(chat):
    answers = []
    for seed in (1, 1, 2):
        chat.reset()
        answers.append(chat(QUESTION, max_new_tokens=20, do_sample=True, temperature=2.0, top_k=0, seed=seed))
    assert answers[0] == answers[1] != answers[2]


def test_repetition_penalty_changes_the_answer(chat):
    plain = chat(QUESTION, max_new_tokens=60)
    chat.reset()
    assert chat(QUESTION, max_new_tokens=60, repetition_penalty=1.5) != plain


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0}, {"temperature": 0.0, "do_sample": True}, {"top_k": -1, "do_sample": True},
        {"top_p": 0.0, "do_sample": True}, {"top_p": 1.5, "do_sample": True}, {"repetition_penalty": 0.0},
    ],
)  # fmt: skip
def test_option_out_of_range_is_named(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*expected"):
        options(**wrong)


# --- tokens that are half a character ---


class Scripted:
    """In place of MNN.llm: says the given tokens, whose bytes are given too, then token 0, which is the end."""

    def __init__(self, tokens):
        self.script, self.said = [*tokens, b""], 0
        self.context = SimpleNamespace(current_token=None)

    def generate_init(self):
        pass

    def reset(self):
        pass

    def forward(self, ids):
        logits = np.zeros((1, len(ids), len(self.script) + 1), np.float32)
        logits[..., (self.said + 1) % len(self.script)] = 1
        self.said += 1
        return SimpleNamespace(read=lambda: logits)

    def stoped(self):
        return self.context.current_token == 0

    def tokenizer_decode(self, token):
        return self.script[token - 1].decode()  # as the real one, raises UnicodeDecodeError for half a character


def pieces_of(tokens):
    engine = llm_child.Engine.__new__(llm_child.Engine)
    engine.inbox, engine.llm, engine.cached = SimpleNamespace(empty=lambda: True), Scripted(tokens), []
    pieces = []
    figures = engine.generate([1, 1], 1000, options(), pieces.append)
    return pieces, figures


def test_character_that_spans_tokens_arrives_whole():
    party = "🎉".encode()
    pieces, figures = pieces_of([b"Gr", b"\xc3", b"\xbc\xc3\x9fe ", party[:2], party[2:3], party[3:], b"!"])
    assert pieces == ["Gr", "", "üße ", "", "", "🎉", "!", ""]
    assert figures["finish"] == "end" and figures["generated_tokens"] == 7


def test_half_a_character_at_the_end_is_marked():
    pieces, _ = pieces_of([b"a", "🎉".encode()[:2]])
    assert "".join(pieces) == "a\ufffd"
