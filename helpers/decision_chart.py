"""The chart that `helpers.diagnose` walks, drawn in HTML: every box leads to the heading of the notebook that tests it.

    show(links={"channels": "Red or blue first?"})                 # the chart alone
    show(diagnosis, links={"channels": "Red or blue first?"})      # coloured by what was found

Why not a picture: from what a notebook shows that was opened but not run, JupyterLab takes out SVG, and the areas of an
image map lead nowhere; boxes of plain HTML stay, with their styles and their links to headings. They work in exported
pages too, and where styles are taken out they are still a list of links.
"""

import html
import re

from IPython.display import display

from .diagnosis import FAULT, FAULTS, FINE, NOT_REACHED, QUESTIONS, SKIPPED
from .plots_compare import LEVELS

LOOKS = {
    FINE: LEVELS["good"],
    FAULT: LEVELS["bad"],
    SKIPPED: (LEVELS["warn"][0], "?"),
    NOT_REACHED: ("#EDEDED", "·"),
    None: ("#DCEEF9", ""),
}
"""{verdict: (colour of the box, sign in it)}; None: there is no diagnosis."""

STAGES = {"files": "files", "signature": "what is fed", "weights": "weights", "outputs": "operators and answers"}
"""{first box of a stage: its title}."""

BOX = (
    "display:inline-block;box-sizing:border-box;width:26em;padding:3px 10px;border:{width}px solid #333333;"
    "border-radius:5px;background-color:{colour};color:#000000;text-decoration:none;vertical-align:middle;line-height:1.3"
)
ASIDE = "display:inline-block;max-width:26em;margin-left:8px;vertical-align:middle;line-height:1.3"


def show(diagnosis=None, links=None):
    """Display the chart.

    diagnosis: a `helpers.diagnosis.Diagnosis`, whose verdicts colour the boxes. links: {name of a box: text of a
    heading in the same notebook, or "cell-id=" and the id of a cell}; a box without one is no link. The output's
    text/plain says the same in words; neither holds a number that was measured. Raises ValueError for a box that does
    not exist and for a heading that cannot be linked to (see `fragment`).
    """
    display({"text/html": draw(diagnosis, links), "text/plain": describe(diagnosis)}, raw=True)


def draw(diagnosis=None, links=None):
    """The chart as HTML. Arguments and errors as in `show`."""
    links = links or {}
    unknown = sorted(set(links) - set(QUESTIONS))
    if unknown:
        raise ValueError(f"The chart has no box {', '.join(map(repr, unknown))}; its boxes are {', '.join(QUESTIONS)}.")
    arrow = '<div style="width:26em;text-align:center;line-height:1.2">↓ yes</div>'
    rows = []
    for box, question in QUESTIONS.items():
        rows += [f"<div><b>{STAGES[box]}</b></div>"] if box in STAGES else []
        rows += [_row(box, question, diagnosis, links.get(box)), arrow]
    rows.append('<div style="width:26em;text-align:center"><b>nothing found</b></div>')
    return f'<div class="decision-chart" style="padding:4px">{"".join(rows)}</div>'


def fragment(heading):
    """The address of a heading inside its page, as JupyterLab and nbconvert make it: "#Red-or-blue-first?".

    Raises ValueError for a heading with characters that one of the two encodes in its own way.
    """
    odd = sorted(set(re.sub(r"[A-Za-z0-9 ?/:@!$&'()*+,;=._~-]", "", heading)))
    if odd or not heading.strip():
        raise ValueError(
            f"A link to the heading {heading!r} does not work everywhere; what stands in its way: {' '.join(odd)}. "
            "Give the heading plain characters, or name its cell: 'cell-id=09-debug-012'."
        )
    return "#" + heading.replace(" ", "-")


def _row(box, question, diagnosis, heading):
    verdict = _verdict(diagnosis, box)
    colour, sign = LOOKS[verdict]
    style = BOX.format(colour=colour, width=3 if verdict == FAULT else 1)
    text = f"<b>{f'{sign} {box}'.strip()}</b><br>{html.escape(question)}"
    if heading is None:
        drawn = f'<span style="{style}">{text}</span>'
    else:
        title = html.escape(f"{verdict or 'go'}: {heading}")
        drawn = f'<a href="{html.escape(fragment(heading))}" title="{title}" style="{style}">{text}</a>'
    if verdict == FAULT:
        leads_to = f"<b>{html.escape(diagnosis.fault)}</b>"
    else:
        leads_to = f'<span style="font-size:85%">{html.escape(", ".join(FAULTS[box]))}</span>'
    return f'<div>{drawn}<span style="{ASIDE}">no → {leads_to}</span></div>'


def _verdict(diagnosis, box):
    return next((step.verdict for step in diagnosis.steps if step.box == box), None) if diagnosis else None


def describe(diagnosis=None):
    """The chart in words, for those who do not see it."""
    boxes = [f"{box} ({_verdict(diagnosis, box) or question})" for box, question in QUESTIONS.items()]
    found = ""
    if diagnosis:
        found = f" Found: {diagnosis.fault}." if diagnosis.fault else " Nothing found."
    return f"Decision chart, from box to box as long as the answer is yes: {' → '.join(boxes)}.{found}"
