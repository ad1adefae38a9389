"""`run`: execute notebooks in order, print a table, write pages. The course's main job."""

from helpers import paths
from helpers.cli import kernel, notebooks
from helpers.cli.execute import execute
from helpers.cli.html import write_index, write_page

HEADER = ("notebook", "seconds", "peak memory", "code cells", "exercises", "status")


def main(options, _rest):
    kernel.use_this_python()
    return run(notebooks.select(options.numbers, paths.NOTEBOOKS))


def run(selected):
    """Execute the notebooks at these paths until one fails; returns the exit code, 0 when all went well."""
    executions = []
    for path in selected:
        execution = execute(path)
        executions.append(execution)
        write_page(execution)
        print(f"{path.stem}: {'failed' if execution.error else 'ok'}, {execution.seconds:.1f} s", flush=True)
        if execution.error:
            break
    index = write_index(executions)
    print("\n" + table(executions, selected))
    print(f"\nThe executed notebooks as pages: {paths.short(index)}")
    failed = executions[-1].error
    if failed:
        print(f"\nFAILED in {failed}\n\nThe notebook: {executions[-1].path}")
    return 1 if failed else 0


def table(executions, selected):
    """One line per selected notebook; those that were not reached say so."""
    rows = [
        (
            execution.path.stem,
            f"{execution.seconds:.1f}",
            f"{execution.peak / 1e6:.0f} MB",
            str(execution.cells),
            f"{execution.solved} of {execution.exercises} solved",
            "FAILED" if execution.error else "ok",
        )
        for execution in executions
    ]
    rows += [(path.stem, "", "", "", "", "not run") for path in selected[len(executions) :]]
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [HEADER, *rows]]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in lines)
