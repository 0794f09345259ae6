"""Headers of HTTP steps that the protocol does not allow, or that the client sets itself, are refused when written."""

from __future__ import annotations

import pytest

from stepkeep.definition.native.reader import load_text
from stepkeep.definition.native.validators import RESERVED
from stepkeep.kernel.errors import DefinitionError


def problems(headers: str) -> str:
    text = f"""

workflow: calls
version: 1
steps:
  - name: call
    http: {{url: "https://example.com/", headers: {headers}}}
"""
    with pytest.raises(DefinitionError) as caught:
        load_text(text, "calls.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(RESERVED | {"Host", "Content-Length", "Transfer-Encoding", "CONNECTION"}))
def test_a_header_that_the_client_sets_is_refused(name: str) -> None:
    assert f"The header `{name}` is set by the client itself." in problems(f'{{"{name}": "x"}}')


@pytest.mark.parametrize("name", ["a b", "a:b", "é", "a\\r\\nb", "(x)"])
def test_what_is_no_name_of_a_header_is_refused(name: str) -> None:
    assert "is no name of a header" in problems(f'{{"{name}": "x"}}')


@pytest.mark.parametrize("value", ["CANARY\\n", "CANARY\\r\\nX-Evil: 1", "CANARY é", " CANARY", "CANARY\\x07"])
def test_a_value_that_cannot_be_sent_is_refused_and_not_quoted(value: str) -> None:
    said = problems(f'{{"Authorization": "{value}"}}')
    assert "The header `Authorization` has a value" in said
    assert "CANARY" not in said


def test_a_header_written_twice_in_two_cases_is_refused() -> None:
    assert "is given twice" in problems('{"Accept": "a", "accept": "b"}')


def test_ordinary_headers_and_expressions_are_accepted() -> None:
    load_text(
        """

workflow: calls
version: 1
input: {token: {type: string}}
steps:
  - name: call
    http:
      url: https://example.com/
      headers: {Authorization: "Bearer ${{ input.token }}", Accept: text/plain, X-Empty: "", X_y: "a  b\\tc"}
""",
        "calls.yaml",
    )
