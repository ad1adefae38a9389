"""What the report says about the notebooks' tests, whichever process ran them."""

NETWORK = {
    "cut": "Notebooks ran with the network cut, each in a network namespace of its own.",
    "watched": "Notebooks ran WITHOUT a network namespace: only what Python code tries to reach was seen and refused.",
}


def pytest_terminal_summary(terminalreporter):
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    found = {value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "network"}
    for value in sorted(found):
        terminalreporter.write_line(NETWORK[value], yellow=value != "cut")
