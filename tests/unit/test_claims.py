import pytest

from helpers.claims import claims_table


def test_a_row_becomes_a_line_of_a_markdown_table():
    lines = claims_table([("a | b", "1 %", "so")]).data.splitlines()
    assert lines[1] == "|---|---|---|" and lines[2] == "| a \\| b | 1 % | so |"


@pytest.mark.parametrize("row", [("a", "b"), ("a", "b", " "), ("a", 1, "c")])
def test_a_row_that_measured_nothing_is_refused(row):
    with pytest.raises(ValueError, match="three non-empty texts"):
        claims_table([row])
