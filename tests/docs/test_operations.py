"""The page of supported operations is what the rules say."""

from tests.tools.write_operations import PAGE, table


def test_the_table_is_that_of_the_rules():
    assert table() in PAGE.read_text(), "run: python -m tests.tools.write_operations"
