"""Every link of a notebook, the README and the glossary leads somewhere, without the network."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import support

from helpers.cli import hygiene
from helpers.paths import NOTEBOOKS, ROOT

PAGES = [ROOT / "README.md", *sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), NOTEBOOKS / "glossary.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def markdown(page):
    """The page's Markdown without its code."""
    if page.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in support.read(page).cells if cell.cell_type == "markdown")
    else:
        text = page.read_text("utf-8")
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """What `#…` can name in a page: its headings, as both JupyterLab and GitHub spell them where these agree."""
    headings = re.findall(r"^#+ (.+)$", markdown(page), re.MULTILINE)
    return {heading.strip().replace(" ", "-") for heading in headings if heading == heading.lower()}


def dead_links(page):
    for link in LINK.findall(markdown(page)):
        name, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    assert list(dead_links(page)) == []


def test_the_readme_lists_every_notebook_with_the_time_it_states():
    rows = re.findall(r"^\| \[\d\d [^]]+\]\(notebooks/([^)]+)\) .* \| (\d+) s \|$", PAGES[0].read_text("utf-8"), re.M)
    notebooks = [page for page in PAGES if page.suffix == ".ipynb"]
    assert rows == [(page.name, str(hygiene.stated_seconds(support.read(page)))) for page in notebooks]


def test_dead_links_are_found(tmp_path):
    page = Path(tmp_path, "page.md")
    Path(tmp_path, "words.md").write_text("## one word\n## Other\n")
    page.write_text("[a](words.md#one-word) [b](words.md#two) [c](gone.ipynb) [d](https://example.org/x) `[e](no)`")
    assert list(dead_links(page)) == ["words.md#two: no such heading", "gone.ipynb: no such file"]


def test_the_glossary_is_in_alphabetical_order_with_one_entry_a_word():
    entries = re.findall(r"^## (.+)$", (NOTEBOOKS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert entries == sorted(set(entries)) and entries
