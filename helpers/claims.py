"""The table at the end of every notebook: what the articles say beside what its cells measured."""

from IPython.display import Markdown


def claims_table(rows):
    """A Markdown table of `rows`: (what the articles say, what we measured, so), three non-empty texts each.

    The middle text is meant to be built from the values that the notebook's cells computed, so that it is true wherever
    the notebook runs. Raises ValueError for a row that is not of this form.
    """
    lines = ["| The articles say | We measured | So |", "|---|---|---|"]
    for row in rows:
        if len(row) != 3 or not all(isinstance(text, str) and text.strip() for text in row):
            raise ValueError(f"claims_table() expects rows of three non-empty texts, found {row!r}.")
        lines.append("| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in row) + " |")
    return Markdown("\n".join(lines))
