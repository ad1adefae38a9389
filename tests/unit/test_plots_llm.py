"""Notebook 10's drawings show the values they are given."""

from types import SimpleNamespace

import pytest

from helpers import plots_llm


def test_the_line_of_an_answer_bends_at_the_first_token():
    answer = SimpleNamespace(prompt_tokens=400, cached_tokens=100, forwards=50, prefill_seconds=2.0, decode_seconds=5.0)
    axes = plots_llm.reading_and_writing({"8 bits": answer}).axes[0]
    line, dot = axes.lines
    assert list(line.get_xdata()) == [0, 2, 7]
    assert list(line.get_ydata()) == [0, 300, 350]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (2, 300)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["8 bits"]


def test_every_way_to_run_a_model_has_its_place_in_both_charts():
    rows = [
        SimpleNamespace(name="a", bytes=168e6, peak_bytes=700e6, kl=0.0001),
        SimpleNamespace(name="b", bytes=84e6, peak_bytes=180e6, kl=0.4),
    ]
    fig = plots_llm.cost_and_loss(rows)
    file, memory = fig.axes
    assert [tuple(dots.get_offsets()[0]) for dots in file.collections] == [(168, pytest.approx(0.0001)), (84, 0.4)]
    assert [tuple(dots.get_offsets()[0]) for dots in memory.collections] == [(700, pytest.approx(0.0001)), (180, 0.4)]
    assert file.get_yscale() == memory.get_yscale() == "log"
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b"]
