import pytest

from helpers.paths import ROOT, atomic_write, short, write_text


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


def test_short_names_a_file_from_the_projects_folder():
    assert short(ROOT / "data" / "mnist") == "data/mnist"
