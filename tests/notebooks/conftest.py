"""What the report says about the notebooks' tests."""

import support


def pytest_terminal_summary(terminalreporter):
    if not support.network_cut.cache_info().currsize:
        return  # no notebook was run
    if support.network_cut():
        terminalreporter.write_line("Notebooks ran with the network cut, each in a network namespace of its own.")
    else:
        terminalreporter.write_line(
            "Notebooks ran WITHOUT a network namespace: only what Python code tries to reach was seen and refused.",
            yellow=True,
        )
