"""What a search asks the database for: a text that every match has as it is stored."""

from __future__ import annotations

import pytest

from stepkeep.operations.search import Terms


@pytest.mark.parametrize(
    ("terms", "needle"),
    [
        (Terms(text="Order-7"), "order-7"),
        (Terms(error="No Answer"), "no answer"),
        (Terms(labels={"team": "B"}), '"b"'),
        (Terms(text='say "x"', labels={"team": "b"}), '"b"'),
        (Terms(text="Zürich"), None),
        (Terms(text="a\\b", labels={"team": 'b"'}), None),
        (Terms(since=1), None),
    ],
)
def test_a_text_that_is_stored_as_it_is_is_looked_for_by_the_database(terms: Terms, needle: str | None) -> None:
    assert terms.needle == needle
