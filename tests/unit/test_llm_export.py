import importlib.util
import json
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from tiny_llm import TEXT, write_folder

from helpers import llm_export, native
from helpers.llm_export import FILES, export
from helpers.llm_weights import CheckpointError
from helpers.native import ToolError

# Refuses what must not happen, and writes it down: an import of MNN's console commands, and pip.
GUARD = """
import os, sys

def hook(event, arguments):
    name = arguments[0] if event == "import" else ""
    if event == "subprocess.Popen":
        name = " ".join(map(str, arguments[1]))
    if name.startswith("MNN.tools") or "pip" in name.split():
        with open(os.environ["GUARD_LOG"], "a") as log:
            log.write(name + "\\n")
        raise ImportError("refused by this test")

sys.addaudithook(hook)
"""
IDS = [5, 70, 33, 12, 200]


@pytest.fixture(scope="module", autouse=True)
def guard(tmp_path_factory):
    """The file in which the children of this process are told on; puts the guard into each of them."""
    folder = tmp_path_factory.mktemp("guard")
    (folder / "sitecustomize.py").write_text(GUARD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.path.dirname(__file__)]))
        patch.setenv("GUARD_LOG", str(folder / "log"))
        patch.setattr(llm_export, "ARTIFACTS", folder)  # for the logs
        yield folder / "log"


@pytest.fixture(scope="module")
def llama(guard, tmp_path_factory):
    """A tiny Llama, embeddings tied, in a folder with a space in its name; a Qwen beside it whose are not."""
    folder = tmp_path_factory.mktemp("with a space") / "My model é"
    native.call("tiny_llm:make", {folder: ("llama", True), folder.with_name("qwen"): ("qwen2", False)})
    return folder


@pytest.fixture(scope="module")
def exported(llama):
    return export(llama, bits=8, block=32, folder=llama.parent / "cache")


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def test_mnn_computes_what_pytorch_does_and_cuts_text_up_alike(llama, exported):
    (expected, tokens), (logits, found) = (
        native.call(f"tiny_llm:{name}", folder, IDS, TEXT)[0]
        for name, folder in {"reference": llama, "answer": exported}.items()
    )
    assert cosine(logits, expected) > 0.999
    assert found == tokens


def test_the_folder_has_all_files_and_nothing_half_made_lies_beside_it(llama, exported):
    assert {file.name for file in exported.iterdir()} >= {*FILES, "made.json"}
    assert [path.name for path in exported.parent.iterdir()] == ["My model é-w8-b32"]
    # 2 layers with 4 matrices of attention, 3 of the rest, and the last: a byte each, and 2 float32 for 32 of them.
    weights = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128) + 64 * 320
    assert weights * 1.25 < (exported / "llm.mnn.weight").stat().st_size < weights * 1.25 + 10_000
    assert json.loads((exported / "config.json").read_text())["memory"] == "low"


def test_nothing_is_installed_and_mnns_console_commands_are_not_imported(exported, guard):
    assert not guard.exists()


def test_that_guard_sees_an_import_in_a_child_process(guard):
    finished = native.run_snippet("import MNN.tools")
    assert finished.returncode != 0 and guard.read_text() == "MNN.tools\n"
    guard.unlink()


def test_four_bits_of_a_qwen_model_whose_embeddings_are_its_own(llama, tmp_path):
    qwen = llama.with_name("qwen")
    folder = export(qwen, bits=4, block=64, folder=tmp_path)
    assert folder.name == "qwen-w4-b64" and (folder / "embeddings_bf16.bin").stat().st_size == 2 * 64 * 320
    (expected, _), (logits, _) = (
        native.call(f"tiny_llm:{name}", folder, IDS, "")[0]
        for name, folder in {"reference": qwen, "answer": folder}.items()
    )
    assert 0.8 < cosine(logits, expected) < 0.999


def test_the_log_is_kept_and_says_what_both_tools_said(exported):
    log = (llm_export.ARTIFACTS / "logs" / "llm-export-My model é-w8-b32.log").read_text(encoding="utf-8")
    assert "--quant_bit 8 --quant_block 32" in log and "Done export config" in log
    assert "Converted Success!" in log


def test_of_colours_and_of_what_was_drawn_again_and_again_only_the_end_is_kept():
    wheel, bar = "\r⠋ load \x1b[K\r⠙ load \x1b[K✅ Done load\x1b[0m\n", "\x1b[?25l⠋ quant\r 10%|x \r100%|xx|\r\n"
    drawn = wheel + bar + "⠹ turn The device\n\nend"
    assert llm_export._plain(drawn) == "load ✅ Done load\n100%|xx|\nturn The device\nend"


# --- reused or made again: a stand-in makes the folder -------------------------------------------------------


@pytest.fixture
def quick(tmp_path, monkeypatch, exported):
    """A checkpoint and the exports of it that were really made, each a copy of the one above."""
    made = []

    def run(checkpoint, scratch, bits, block, log_path, timeout):
        made.append((bits, block))
        return Path(shutil.copytree(exported, scratch / "model", ignore=shutil.ignore_patterns("made.json")))

    monkeypatch.setattr(llm_export, "_run", run)
    return write_folder(tmp_path / "model"), made


def test_an_export_is_reused_and_another_setting_has_a_folder_of_its_own(quick, tmp_path, capsys):
    checkpoint, made = quick
    first = export(checkpoint, bits=8, block=32, folder=tmp_path / "cache")
    (first / "config.json").write_text('{"memory": "high"}')  # the learner's to change
    assert export(checkpoint, bits=8, block=32, folder=tmp_path / "cache") == first
    assert json.loads((first / "config.json").read_text()) == {"memory": "high"}
    assert made == [(8, 32)]
    assert export(checkpoint, bits=4, block=32, folder=tmp_path / "cache") != first
    assert made == [(8, 32), (4, 32)]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and ": made from" in lines[0] and ": reused (" in lines[1] and ": made from" in lines[2]


@pytest.mark.parametrize("name", ["llm.mnn", "llm.mnn.weight", "tokenizer.mtok", "llm_config.json"])
def test_an_export_that_was_cut_short_is_made_again(quick, tmp_path, name, capsys):
    checkpoint, made = quick
    folder = export(checkpoint, bits=8, block=32, folder=tmp_path)
    size = (folder / name).stat().st_size
    os.truncate(folder / name, size - 1)
    export(checkpoint, bits=8, block=32, folder=tmp_path)
    assert len(made) == 2 and (folder / name).stat().st_size == size
    assert "made again, since it was not whole" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["config.json", "made.json"])
def test_an_export_that_lacks_a_file_is_made_again(quick, tmp_path, name):
    checkpoint, made = quick
    (export(checkpoint, bits=8, block=32, folder=tmp_path) / name).unlink()
    assert (export(checkpoint, bits=8, block=32, folder=tmp_path) / name).exists() and len(made) == 2


def test_an_export_of_a_checkpoint_that_has_changed_since_is_made_again(quick, tmp_path):
    checkpoint, made = quick
    export(checkpoint, bits=8, block=32, folder=tmp_path)
    os.utime(checkpoint / "model.safetensors", (1, 1))
    export(checkpoint, bits=8, block=32, folder=tmp_path)
    assert len(made) == 2


@pytest.mark.parametrize("package", ["llmexport", "MNN"])
def test_an_export_by_another_version_is_made_again(quick, tmp_path, monkeypatch, package):
    checkpoint, made = quick
    export(checkpoint, bits=8, block=32, folder=tmp_path)
    version = importlib.metadata.version
    monkeypatch.setattr(
        llm_export.importlib.metadata, "version", lambda name: "0.1" if name == package else version(name)
    )
    export(checkpoint, bits=8, block=32, folder=tmp_path)
    assert len(made) == 2


# --- what can go wrong ---------------------------------------------------------------------------------------


def test_a_converter_that_fails_is_an_error_with_its_words(llama, monkeypatch, tmp_path):
    write = llm_export._write_converter

    def write_broken(scratch):
        command = write(scratch)
        (scratch / command).write_text("#!/bin/sh\necho 'the ink has run out'\nexit 3\n")
        return command

    monkeypatch.setattr(llm_export, "_write_converter", write_broken)
    with pytest.raises(ToolError, match="(?s)cannot make a model.*8 bits, block 32.*the ink has run out") as caught:
        export(llama, bits=8, block=32, folder=tmp_path / "cache")
    assert "llm.mnn" in str(caught.value) and "logs/llm-export-" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="signals are a POSIX matter")
def test_an_export_that_is_killed_leaves_nothing_but_an_error(llama, exported, tmp_path):
    def kill():
        while True:
            for child in psutil.Process().children():
                if "llmexport.py" in " ".join(child.cmdline()):
                    time.sleep(1)
                    child.kill()
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    before = {file: file.stat().st_mtime_ns for file in exported.iterdir()}
    shutil.copytree(exported, tmp_path / "My model é-w4-b32")
    with pytest.raises(ToolError, match="ended with killed by SIGKILL"):
        export(llama, bits=4, block=32, folder=tmp_path)
    thread.join(10)
    assert [path.name for path in tmp_path.iterdir()] == ["My model é-w4-b32"]
    assert {file: file.stat().st_mtime_ns for file in exported.iterdir()} == before


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Puts a few lines of Python, run in the scratch folder, in llmexport.py's place."""

    def install(source):
        (tmp_path / "llmexport.py").write_text(source, encoding="utf-8")
        origin = str(tmp_path / "__init__.py")
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=origin))

    return install


def fails(tmp_path, words, **settings):
    with pytest.raises(ToolError, match=words) as caught:
        export(write_folder(tmp_path / "some model"), bits=8, block=32, folder=tmp_path / "cache", **settings)
    assert list((tmp_path / "cache").iterdir()) == []
    return caught.value


def test_an_exporter_that_fails_is_an_error_with_its_last_words(tmp_path, script):
    script("print('reading')\nraise KeyError('lm_head')")
    error = fails(tmp_path, "(?s)ended with exit code 1.*KeyError: 'lm_head'")
    assert "reading" in error.log


def test_an_exporter_that_makes_nothing_and_says_all_is_well_is_an_error(tmp_path, script):
    script("print('Done')")
    fails(tmp_path, "config.json, llm_config.json, llm.mnn, .* are missing from what it made")


def test_an_exporter_that_does_not_end_is_stopped(tmp_path, script):
    script("import time\nprint('still at it', flush=True)\ntime.sleep(60)")
    start = time.perf_counter()
    fails(tmp_path, "(?s)no result after 5 s.*still at it", timeout=5)
    assert time.perf_counter() - start < 30


def copy_of(exported, then):
    return f"import os, shutil\nshutil.copytree({str(exported)!r}, 'model')\n{then}"


def test_an_export_with_too_few_weights_is_an_error(tmp_path, script, exported):
    size = (exported / "llm.mnn.weight").stat().st_size
    script(copy_of(exported, f"os.truncate('model/llm.mnn.weight', {size - 1})"))
    fails(tmp_path, f"llm.mnn.weight has {size - 1:,} bytes; the 20 layers that refer to it need {size:,}")


def test_an_export_that_mnn_cannot_run_is_an_error(tmp_path, script, exported):
    script(copy_of(exported, "open('model/llm.mnn', 'wb').write(b'no graph' * 100)"))
    fails(tmp_path, "MNN, loading it, ended with (killed by|exit code)")


def test_an_export_whose_answer_is_not_a_number_is_an_error(tmp_path, script, exported):
    _, place, size, *_ = json.loads((exported / "llm_config.json").read_text())["tie_embeddings"]
    # The last layer's scales become NaN.
    spoil = f"file = open('model/llm.mnn.weight', 'r+b')\nfile.seek({place})\nfile.write(b'\\xff' * {size})"
    script(copy_of(exported, spoil))
    fails(tmp_path, "answers three tokens with numbers that are none")


@pytest.mark.parametrize("settings", [{"bits": 3, "block": 32}, {"bits": 8, "block": 48}, {"bits": "8", "block": 32}])
def test_settings_that_llmexport_does_not_have_are_refused(tmp_path, settings):
    with pytest.raises(ValueError, match="bits 8 or 4 and block 32, 64 or 128; found"):
        export(write_folder(tmp_path / "model"), **settings, folder=tmp_path)


@pytest.mark.parametrize("name", ["my-bge-model", "gte-small", "Qwen3-Embedding-0.6B"])
def test_a_name_that_llmexport_would_misread_is_refused(tmp_path, name):
    with pytest.raises(CheckpointError, match="takes '.*' for an embedding model.*Rename or move"):
        export(write_folder(tmp_path / name), bits=8, block=32, folder=tmp_path / "cache")


def test_what_is_no_checkpoint_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(CheckpointError, match="there is no such folder"):
        export(tmp_path / "nowhere", bits=8, block=32, folder=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
