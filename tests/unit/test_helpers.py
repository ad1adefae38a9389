"""What importing the package does, and does not do."""

from helpers.native import run_snippet


def test_onnx_runtime_is_told_not_to_report_its_use():
    source = "import os; os.environ.pop('{0}', None); import helpers; print(os.environ['{0}'])"
    source = source.format("ORT_DISABLE_TELEMETRY")
    assert run_snippet(source).log.strip() == "1"


def test_the_package_itself_needs_the_standard_library_only():
    source = "import sys; before = set(sys.modules); import helpers.__main__; print(*sorted(set(sys.modules) - before))"
    loaded = {name.split(".")[0] for name in run_snippet(source).log.split()}
    import sys

    assert loaded <= {*sys.stdlib_module_names, "helpers"}
