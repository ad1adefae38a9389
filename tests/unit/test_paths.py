import os
import subprocess
import sys

import pytest

from helpers.paths import ARTIFACTS, ROOT, atomic_write, short, write_text


def test_a_finished_write_replaces_the_old_file(tmp_path):
    write_text(tmp_path / "new folder" / "a.txt", "one")
    write_text(tmp_path / "new folder" / "a.txt", "two ü")
    assert (tmp_path / "new folder" / "a.txt").read_text(encoding="utf-8") == "two ü"


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"good")
    with pytest.raises(KeyboardInterrupt), atomic_write(target) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_writes_nothing_is_an_error_and_keeps_the_old_file(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"good")
    with pytest.raises(FileNotFoundError), atomic_write(target):
        pass
    assert target.read_bytes() == b"good"


def write_folder(path, text):
    with atomic_write(path) as temporary:
        temporary.mkdir()
        (temporary / "a.txt").write_text(text)


def test_a_finished_folder_replaces_the_old_one_as_a_whole(tmp_path):
    write_folder(tmp_path / "folder", "one")
    (tmp_path / "folder" / "b.txt").touch()
    write_folder(tmp_path / "folder", "two")
    assert [file.read_text() for file in (tmp_path / "folder").iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_interrupted_or_empty_block_keeps_the_old_folder(tmp_path):
    write_folder(tmp_path / "folder", "one")
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "folder") as temporary:
        temporary.mkdir()
        raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "folder"):
        pass
    assert (tmp_path / "folder" / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_language_models_cache_has_one_name_wherever_it_lies(tmp_path):
    program = "from helpers import paths; print(paths.LLM_CACHE); print(paths.short(paths.LLM_CACHE / 'a' / 'b'))"
    for value, place in (("", ARTIFACTS / "llm"), (str(tmp_path / "far"), tmp_path / "far")):
        environment = {**os.environ, "MNN_COURSE_LLM_CACHE": value}
        command = [sys.executable, "-c", program]
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert child.stdout.splitlines() == [str(place), "artifacts/llm/a/b"], child.stderr


def test_short_names_a_file_from_the_projects_folder():
    assert short(ROOT / "data" / "mnist") == "data/mnist"
