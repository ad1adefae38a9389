"""Executed notebooks as pages that need neither a server nor the network."""

import html
import os
import re
import shutil

import nbformat
from jinja2 import DictLoader
from nbconvert import HTMLExporter

from helpers import paths

# nbconvert's page loads require.js, MathJax and Mermaid from the web; these blocks take the three out.
TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The course's notebooks, executed</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #ccc; }}
td.n, th.n {{ text-align: right; }}
</style>
</head>
<body>
<h1>The course's notebooks, executed</h1>
<table>
<thead><tr><th>Notebook</th><th class="n">Seconds</th><th class="n">Peak memory</th><th class="n">Code cells</th>
<th class="n">Exercises solved</th><th>Status</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p>A link to a notebook that is not in this table leads to a page only if an earlier run made one.</p>
</body>
</html>
"""


def write_page(execution, folder=None):
    """Write an executed notebook to `folder`/<name>.html (default artifacts/html); returns the path."""
    folder = folder or paths.ARTIFACTS / "html"
    nb = nbformat.from_dict(execution.nb)
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = _rebase(cell.source, execution.path.parent, folder)
    return _export(nb, execution.path, folder)


def _export(nb, path, folder):
    """Write the notebook `nb`, whose file is `path`, as a page in `folder`; returns the page's path."""
    exporter = HTMLExporter(
        extra_loaders=[DictLoader({"page.html.j2": TEMPLATE})], template_file="page.html.j2", embed_images=True
    )
    page, _ = exporter.from_notebook_node(nb, resources={"metadata": {"name": path.stem, "path": str(path.parent)}})
    paths.write_text(folder / f"{path.stem}.html", page)
    return folder / f"{path.stem}.html"


def write_index(executions, folder=None):
    """Write `folder`/index.html, a table of what was executed, and what the pages link to: solutions, glossary."""
    folder = folder or paths.ARTIFACTS / "html"
    rows = "\n".join(_row(execution) for execution in executions)
    paths.write_text(folder / "index.html", INDEX.format(rows=rows))
    for source in {execution.path.parent for execution in executions}:
        solutions, glossary = source / "solutions", source / "glossary.md"
        if solutions.is_dir():
            hidden = shutil.ignore_patterns("__*", ".*")
            shutil.copytree(solutions, folder / "solutions", dirs_exist_ok=True, ignore=hidden)
        if glossary.exists():
            cell = nbformat.v4.new_markdown_cell(glossary.read_text(encoding="utf-8"))
            _export(nbformat.v4.new_notebook(cells=[cell]), glossary, folder)
    return folder / "index.html"


def _row(execution):
    heading = next((cell.source.splitlines()[0] for cell in execution.nb.cells if cell.source.startswith("# ")), "")
    title = html.escape(heading.lstrip("# ") or execution.path.stem)
    status = "failed" if execution.error else "ok"
    return (
        f'<tr><td><a href="{execution.path.stem}.html">{title}</a></td><td class="n">{execution.seconds:.1f}</td>'
        f'<td class="n">{execution.peak / 1e6:.0f} MB</td><td class="n">{execution.cells}</td>'
        f'<td class="n">{execution.solved} of {execution.exercises}</td><td>{status}</td></tr>'
    )


def _rebase(markdown, source, target):
    """Links to notebooks and the glossary lead to their pages; those into the project lead there from `target`."""
    up = os.path.relpath(source.parent, target).replace(os.sep, "/")
    markdown = re.sub(r"(\]\((?:\./)?[\w-]+)\.(?:ipynb|md)(#[^)\s]*)?\)", r"\1.html\2)", markdown)
    return re.sub(r"\]\(\.\./", rf"]({up}/", markdown)
