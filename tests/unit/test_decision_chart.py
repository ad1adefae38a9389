import re
from html.parser import HTMLParser

import pytest

from helpers import decision_chart
from helpers.decision_chart import LOOKS, describe, draw, fragment, show
from helpers.diagnosis import FAULTS, QUESTIONS, Diagnosis, Step


class Boxes(HTMLParser):
    """The boxes of a chart: [(tag, attributes, text)]. Complains about tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.boxes, self.open, self.text, self.inside = [], [], "", 99
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        if tag == "br":
            return
        self.open.append(tag)
        attributes = dict(attrs)
        if "border:" in attributes.get("style", ""):
            self.boxes.append([tag, attributes, ""])
            self.inside = len(self.open)  # as long as so many tags are open

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if len(self.open) < self.inside:
            self.inside = 99

    def handle_data(self, data):
        self.text += data
        if len(self.open) >= self.inside:
            self.boxes[-1][2] += data


def diagnosis(fault=None, at=None, skipped=()):
    steps, reached = [], True
    for box, question in QUESTIONS.items():
        verdict = "fault" if box == at else "skipped" if box in skipped else "fine" if reached else "not reached"
        reached = reached and box != at
        steps.append(Step(box, question, verdict, "61 % as fed"))
    return Diagnosis(fault, tuple(steps))


def test_the_boxes_stand_in_the_order_of_the_questions_and_hold_them():
    boxes = Boxes(draw()).boxes
    assert [text for _, _, text in boxes] == [box + question for box, question in QUESTIONS.items()]
    for first, title in decision_chart.STAGES.items():
        assert f"{title}{first}{QUESTIONS[first]}no → " in Boxes(draw()).text
    assert Boxes(draw()).text.count("↓ yes") == Boxes(draw()).text.count("no → ") == len(QUESTIONS)


def test_a_box_with_a_heading_is_a_link_to_it_and_one_without_is_none():
    links = {"channels": "Red or blue first?", "files": "cell-id=09-debug-012"}
    boxes = dict(zip(QUESTIONS, Boxes(draw(links=links)).boxes, strict=True))
    assert boxes["channels"][0] == "a" and boxes["channels"][1]["href"] == "#Red-or-blue-first?"
    assert boxes["files"][1]["href"] == "#cell-id=09-debug-012"
    assert {tag for box, (tag, _, _) in boxes.items() if box not in links} == {"span"}


def test_the_verdict_is_told_by_colour_and_by_sign():
    boxes = dict(zip(QUESTIONS, Boxes(draw(diagnosis("layout", "layout", ["scaling"]))).boxes, strict=True))
    for box, verdict in {"files": "fine", "scaling": "skipped", "layout": "fault", "layers": "not reached"}.items():
        colour, sign = LOOKS[verdict]
        assert f"background-color:{colour};" in boxes[box][1]["style"]
        assert boxes[box][2].startswith(f"{sign} {box}")
    thick = [box for box, (_, attributes, _) in boxes.items() if "border:3px" in attributes["style"]]
    assert thick == ["layout"]
    assert len(set(LOOKS.values())) == len(LOOKS) and len({sign for _, sign in LOOKS.values()}) == len(LOOKS)


def test_the_fault_that_was_found_stands_alone_beside_its_box():
    text = Boxes(draw(diagnosis("wrong mean/std", "scaling"))).text
    assert "no → wrong mean/std↓" in text
    assert f"no → {', '.join(FAULTS['scaling'])}↓" in Boxes(draw()).text


def test_no_measured_number_is_in_the_output():
    found = diagnosis("layout", "layout")
    assert "61" not in draw(found) and "61" not in describe(found)


def test_the_words_say_what_the_picture_shows():
    words = describe(diagnosis("layout", "layout"))
    assert words.endswith("Found: layout.") and "channels (fine) → layout (fault) → orientation (not reached)" in words
    assert describe(diagnosis()).endswith("accuracy (fine). Nothing found.")
    assert all(question in describe() for question in QUESTIONS.values())


def test_it_is_shown_as_html_with_words_for_those_who_do_not_see_it(monkeypatch):
    shown = []
    monkeypatch.setattr(decision_chart, "display", lambda data, raw: shown.append(data))
    show(diagnosis(), {"files": "Files"})
    assert shown == [{"text/html": draw(diagnosis(), {"files": "Files"}), "text/plain": describe(diagnosis())}]
    assert len(shown[0]["text/html"]) < 20_000


def test_nothing_is_used_that_an_untrusted_notebook_loses():
    html = draw(diagnosis("layout", "layout"), dict.fromkeys(QUESTIONS, "Here"))
    assert not re.search(r"<(svg|img|map|area|script|style)\b|\bon\w+=|\bid=", html)


def test_a_box_that_does_not_exist_is_an_error_that_lists_those_that_do():
    with pytest.raises(ValueError, match="no box 'colour'; its boxes are files, export"):
        draw(links={"colour": "Here"})


@pytest.mark.parametrize("heading", ["Höhe", "The 14 % story", 'A "tensor"', "`fp16`", "a < b", "No. #2", "A – B", " "])
def test_a_heading_that_cannot_be_linked_to_everywhere_is_an_error(heading):
    with pytest.raises(ValueError, match="does not work everywhere"):
        fragment(heading)


def test_text_in_a_heading_cannot_become_markup():
    html = draw(links={"files": "Q & A: what's first?"})
    assert 'href="#Q-&amp;-A:' in html and "&amp; A: what" in html
    boxes = Boxes(html).boxes
    assert boxes[0][1]["href"] == "#Q-&-A:-what's-first?"
