"""The door: `python3 -m helpers COMMAND`. Parses the command, makes the environment if need be, and goes on in it.

Standard library only, and no syntax newer than Python 3.7: it must start anywhere to say what is missing.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

from helpers.cli import CommandError, bootstrap, notebooks

ROOT = Path(__file__).resolve().parents[1]


def parse(arguments):
    """The command line as (namespace, arguments to pass on to JupyterLab or pytest)."""
    parser = argparse.ArgumentParser(
        prog="python3 -m helpers",
        description="The course's commands. The first one called sets up the environment, once.",
        epilog="Start with: python3 -m helpers lab",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True

    def command(name, summary, details=""):
        return commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {details}")

    command(
        "lab", "open JupyterLab on the notebooks",
        "It listens on this machine only. Further options go to JupyterLab, as in: lab --no-browser --port 8899",
    )  # fmt: skip
    number = {"nargs": "*", "metavar": "NN", "help": "two digits of a notebook, as in 05 (default: all of them)"}
    command(
        "run", "execute the notebooks without a browser, print a table, write HTML pages",
        "The notebooks' files stay as they are. The pages: artifacts/html/index.html",
    ).add_argument("numbers", **number)  # fmt: skip
    fast = command("test", "run the tests", "What follows -- goes to pytest, as in: test -- -k parity")
    fast.add_argument("--fast", action="store_true", help="leave out the notebooks and the browser")
    command(
        "render", "re-execute notebooks in place and save their outputs",
        "For authors, before a commit. A notebook that fails is left as it was.",
    ).add_argument("numbers", **number)  # fmt: skip
    command(
        "bench", "time the engines against each other and print the tables",
        "Takes about a minute. Close other programs first. The figures as JSON: artifacts/bench.json",
    )  # fmt: skip
    clean = command(
        "clean", "delete caches: the language model, the decompressed images, HTML pages, screenshots",
        "The notebooks make or fetch them again. Your weights and your progress stay.",
    )  # fmt: skip
    clean.add_argument("--all", action="store_true", help="delete all of artifacts/: your weights and progress too")
    clean.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")
    doctor = command("doctor", "say what is in order and what is not", "Installs and changes nothing.")
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")

    rest = []
    if "--" in arguments:
        place = arguments.index("--")
        arguments, rest = arguments[:place], arguments[place + 1 :]
    options, unknown = parser.parse_known_args(arguments)
    if unknown and options.command != "lab":
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest and options.command not in ("lab", "test"):
        parser.error(f"{options.command} passes nothing on: {' '.join(rest)}")
    return options, unknown + rest


def main(arguments):
    options, rest = parse(arguments)
    if options.command in ("run", "render"):
        notebooks.select(options.numbers, ROOT / "notebooks")  # a typing error should not cost an installation first
    if options.command == "clean":  # needs no environment
        bootstrap.check_python()
    elif options.command != "doctor":
        python = bootstrap.ensure(ROOT)
        if python != sys.executable:
            return bootstrap.enter(python, ROOT, arguments)
        os.environ.update(bootstrap.child_environment(ROOT))
    return importlib.import_module(f"helpers.cli.{options.command}").main(options, rest)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that lacks a character prints "?" and goes on
    try:
        sys.exit(main(sys.argv[1:]))
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to go on.", file=sys.stderr)
        sys.exit(130)
