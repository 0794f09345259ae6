"""Documents: plain data with places, the same limits for YAML and JSON, and a readable refusal for everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st
from tests.suites import drawn, in_proof, short_and_all

from stepkeep.definition.text.document import (
    MAX_BYTES,
    Document,
    Syntax,
    nearest,
    parse_document,
    path_text,
    read_document,
    render,
)
from stepkeep.kernel.errors import DefinitionError, Problem

STORABLE = st.characters(codec="utf-8", exclude_characters="\x00")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(STORABLE)
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(STORABLE), inner, max_size=4),
    max_leaves=20,
)


def problems_of(text: str | bytes, syntax: Syntax = "yaml") -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        parse_document(text, file="flow", syntax=syntax)
    return list(caught.value.problems)


def the_problem_of(text: str | bytes, syntax: Syntax = "yaml") -> Problem:
    (problem,) = problems_of(text, syntax)
    return problem


def read_or_refuse(text: str | bytes, syntax: Syntax) -> tuple[object, tuple[Problem, ...]]:
    try:
        return parse_document(text, syntax=syntax).data, ()
    except DefinitionError as error:
        return None, error.problems


def scalars_in(data: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    if isinstance(data, dict):
        return [((key, *path), leaf) for key, value in data.items() for path, leaf in scalars_in(value)]
    if isinstance(data, list):
        return [((number, *path), leaf) for number, value in enumerate(data) for path, leaf in scalars_in(value)]
    return [((), data)]


# What a document means


def test_a_definition_becomes_plain_data() -> None:
    text = """
workflow: onboarding     # a comment
version: 3
steps:
  - name: create-account
    retry: { max_attempts: 5, on: [transient, timeout] }
    note: |
      two
      lines
"""
    assert parse_document(text).data == {
        "workflow": "onboarding",
        "version": 3,
        "steps": [
            {
                "name": "create-account",
                "retry": {"max_attempts": 5, "on": ["transient", "timeout"]},
                "note": "two\nlines\n",
            }
        ],
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("nul", "nul"),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-11-15", "2026-11-15"),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".", "."),
        ("-", [None]),
        ("1.2.3", "1.2.3"),
        ('"12"', "12"),
        ("'true'", "true"),
        ('"<<"', "<<"),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(written: str, meant: object) -> None:
    data = parse_document(f"value:\n  {written}").data
    assert data == {"value": meant}
    assert isinstance(data, dict)
    assert type(data["value"]) is type(meant)


def test_a_key_that_yaml_1_1_reads_as_a_boolean_is_text() -> None:
    assert parse_document("retry: {on: [timeout], no: 1}").data == {"retry": {"on": ["timeout"], "no": 1}}


def test_json_is_yaml_too() -> None:
    assert parse_document('{"a": [1, "b", null], "c":true}').data == {"a": [1, "b", None], "c": True}


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    document = parse_document(b"\xef\xbb\xbfa: 1")
    assert document.data == {"a": 1}
    assert document.position(("a",)) == (1, 4)


# Expressions that are not in quotes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{ value: ${{ input.email }} }", "${{ input.email }}"),
        ("{ value: Dear ${{ input.name }}!}", "Dear ${{ input.name }}!"),
        ('{ value: ${{ {"a": {"b": 1}} }} }', '${{ {"a": {"b": 1}} }}'),
        ('{ value: ${{ "}}" }} }', '${{ "}}" }}'),
        ("{ value: ${{ a }}-${{ b }} }", "${{ a }}-${{ b }}"),
        ("value: ${{ input.ok ? 1 : 2 }}", "${{ input.ok ? 1 : 2 }}"),
        ('value: ${{ input.x == "a: b" }}', '${{ input.x == "a: b" }}'),
        ("{ value: '${{ ''it'' }}', x: ${{ y }} }", "${{ 'it' }}"),
        ('{ value: "${{ \\"it\\" }}", x: ${{ y }} }', '${{ "it" }}'),
        ("{ value: [${{ a[0] }}, 2] }", ["${{ a[0] }}", 2]),
        ("{ # ${{ not }} this\n value: ${{ this }} }", "${{ this }}"),
    ],
)
def test_an_expression_without_quotes_stays_whole(written: str, meant: object) -> None:
    data = parse_document(written).data
    assert isinstance(data, dict)
    assert data["value"] == meant


def test_text_that_yaml_accepts_means_what_yaml_says_even_with_an_expression_in_it() -> None:
    assert parse_document("value: ${{ a }} # ${{ b }}").data == {"value": "${{ a }}"}


def test_places_after_an_expression_without_quotes_are_those_of_the_text() -> None:
    document = parse_document("{ a: ${{ input.email }}, é: 😀, b: 1 }")
    assert document.position(("b",)) == (1, 35)
    assert document.position(("b",), key=True) == (1, 32)


def test_the_error_after_an_expression_without_quotes_is_the_one_reported() -> None:
    problem = the_problem_of("a: { b: ${{ c }} }\nd: { e: f\n")
    assert problem.line == 3
    assert "expected ',' or '}'" in problem.message


def test_private_characters_of_the_text_survive_beside_an_expression() -> None:
    assert parse_document("{ a: \ue000\ue001, b: ${{ c }} }").data == {"a": "\ue000\ue001", "b": "${{ c }}"}


# Places


@pytest.fixture
def document() -> Document:
    return parse_document('steps:\n  - name: é\n    with: { "to": x, 😀: [1, two] }\n', file="flow")


@pytest.mark.parametrize(
    ("path", "value_at", "key_at"),
    [
        ((), (1, 1), (1, 1)),
        (("steps",), (2, 3), (1, 1)),
        (("steps", 0), (2, 5), (2, 5)),
        (("steps", 0, "name"), (2, 11), (2, 5)),
        (("steps", 0, "with"), (3, 11), (3, 5)),
        (("steps", 0, "with", "to"), (3, 19), (3, 13)),
        (("steps", 0, "with", "😀", 1), (3, 29), (3, 29)),
    ],
)
def test_every_key_and_value_has_a_place(
    document: Document, path: tuple[str | int, ...], value_at: tuple[int, int], key_at: tuple[int, int]
) -> None:
    assert document.position(path) == value_at
    assert document.position(path, key=True) == key_at


@pytest.mark.parametrize("path", [("steps", 0, "with", "missing"), ("steps", 0, "with", "missing", "more")])
def test_a_missing_value_has_the_place_of_its_nearest_parent(document: Document, path: tuple[str | int, ...]) -> None:
    assert document.position(path) == document.position(("steps", 0, "with"))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a: bcd", 6),
        ("a: 'bcd'", 7),
        ('a: "bcd"', 7),
        ('a: "\\x62cd"', 4),
        ("a: '''cd'", 4),
        ("a: |\n  bcd", 4),
        ("a: >-\n  bcd", 4),
    ],
)
def test_a_place_inside_a_text_is_exact_where_it_is_written_as_it_is(text: str, column: int) -> None:
    assert parse_document(text).position(("a",), inside=2) == (1, column)


def test_a_problem_names_file_line_column_and_path(document: Document) -> None:
    problem = document.problem(("steps", 0, "with", "😀", 1), "This is wrong.", "Mend it.")
    assert str(problem) == "flow:3:29: This is wrong. Mend it."
    assert problem.path == "steps[0].with['😀'][1]"


def test_problems_are_rendered_in_the_order_of_the_text(document: Document) -> None:
    later, earlier = document.problem(("steps", 0, "with"), "B."), document.problem(("steps",), "A.", key=True)
    assert render([later, earlier]) == "flow:1:1: A.\nflow:3:11: B."


def test_a_path_is_written_as_people_write_it() -> None:
    assert path_text(("steps", 0, "create-account", "a b", 1)) == "steps[0].create-account['a b'][1]"


@drawn(16, 100, DATA)
def test_json_reads_back_what_was_written_and_points_at_it(data: Any) -> None:
    text = json.dumps(data, indent=1)
    document = parse_document(text, syntax="json")
    assert document.data == data
    lines = text.split("\n")
    for path, leaf in scalars_in(data):
        if leaf not in ({}, []):
            line, column = document.position(path)
            assert lines[line - 1][column - 1 :].startswith(json.dumps(leaf))


class QuotingDumper(yaml.SafeDumper):
    """Quotes every text: the ordinary one leaves `08` bare, which YAML 1.1 does not take for a number."""


QuotingDumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


@drawn(16, 100, DATA)
def test_yaml_reads_back_what_was_written(data: Any) -> None:
    assert parse_document(yaml.dump(data, Dumper=QuotingDumper, allow_unicode=True)).data == data


ONE_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\x00\n\r\x85\u2028\u2029"))
SNIPPETS = ["input.a", "'it'", '"a: b"', '{"a": {"b": "}}"}}', r'r"\d"', r'"\n" + input["x"]', "a ? b : c", "a // it's"]


@drawn(
    16,
    100,
    st.lists(st.sampled_from(SNIPPETS) | ONE_LINE.filter(lambda text: "${{" not in text), max_size=4),
    st.sampled_from(["'", '"']),
)
def test_quoted_text_and_expressions_survive_beside_unquoted_ones(pieces: list[str], quote: str) -> None:
    texts = [f"${{{{ {piece} }}}}" if piece in SNIPPETS else piece for piece in pieces]
    quoted = yaml.safe_dump(texts, default_flow_style=True, default_style=quote, width=10**9, allow_unicode=True)
    both = f"[{quoted.strip()}, ${{{{ a ? b : c }}}}]"
    assert parse_document(both).data == [texts, "${{ a ? b : c }}"]


# What is refused


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a: 1\nb: 2\na: 3", (3, 1), "The key `a` is here twice."),
        ("a: {b: 1, 'b': 2}", (1, 11), "The key `b` is here twice."),
        ("a: &x 1", (1, 4), "Anchors"),
        ("a: &x [1]", (1, 4), "Anchors"),
        ("a: *x", (1, 4), "Aliases"),
        ("*x : 1", (1, 1), "Aliases"),
        ("a: !!str 1", (1, 4), "Tags"),
        ("a: ! 1", (1, 4), "Tags"),
        ("a: !!python/object/apply:os.system ['true']", (1, 4), "Tags"),
        ("!!map {a: 1}", (1, 1), "Tags"),
        ("<<: {a: 1}", (1, 1), "Merge keys"),
        ("a: 1\n---\nb: 2", (2, 1), "A second document"),
        ("%YAML 1.1\n---\na: 1", (1, 1), "Directives"),
        ("", (1, 1), "nothing in this document"),
        ("# only a comment", (1, 1), "nothing in this document"),
        ("1: a", (1, 1), "The key `1` is not text."),
        ("true: a", (1, 1), "The key `true` is not text."),
        ("null: a", (1, 1), "The key `null` is not text."),
        ("[a]: b", (1, 1), "A key must be text."),
        ("? {a: b}\n: c", (1, 3), "A key must be text."),
        ("a: .inf", (1, 4), "`.inf` is not a number that can be stored"),
        ("a: -.INF", (1, 4), "is not a number that can be stored"),
        ("a: .NaN", (1, 4), "is not a number that can be stored"),
        ("a: 1e999", (1, 4), "too large"),
        ("a: 0777", (1, 4), "starts with 0"),
        ("a: 007", (1, 4), "starts with 0"),
        (f"a: {2**63}", (1, 4), "64 bits"),
        (f"a: {-(2**63) - 1}", (1, 4), "64 bits"),
        ("a: 0x" + "f" * 17, (1, 4), "64 bits"),
        ("a: " + "9" * 100_000, (1, 4), "64 bits"),
        ("a: " + "9" * 100_000 + ".5", (1, 4), "too large"),
        ('a: "b\\0c"', (1, 4), "NUL"),
        ('"b\\0c": a', (1, 1), "NUL"),
        ('a: "\\ud800"', (1, 7), "invalid Unicode character escape"),
        ("a: b\x00c", (1, 5), "U+0000"),
        ("a: b\x1bc", (1, 5), "U+001B"),
        ("a:\n  b\ud800c", (2, 4), "U+D800"),
        ("a: b\ufeffc", (1, 5), "U+FEFF"),
        (b"a:\n  \xff", (2, 3), "not UTF-8"),
        ("a: 1".encode("utf-16"), (1, 1), "UTF-16"),
        ("a:\n\t- b", (2, 1), "Indent with spaces"),
        ("a: b: c", (1, 5), "quote text that holds"),
        ("a: @b", (1, 4), "Put the text in quotes."),
        ('a: "b', (1, 6), "Close the quotes."),
        ("a: [1, 2", (1, 9), "Close the bracket"),
        ("a: { b: ${{ c }", (1, 10), "Close the brace"),
        ("[" * 33 + "]" * 33, (1, 33), "more than 32 levels"),
        ("- " * 33 + "a", (1, 65), "more than 32 levels"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_yaml_that_cannot_be_accepted_is_refused_where_it_stands(
    text: str | bytes, place: tuple[int, int], said: str
) -> None:
    problem = problems_of(text)[0]
    assert (problem.line, problem.column) == place
    assert said in str(problem)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('{"a": 1, "a": 2}', (1, 10), "The key `a` is here twice."),
        ('{"a": {"b": 1,\n "b": 2}}', (2, 2), "The key `b` is here twice."),
        ("[NaN]", (1, 2), "`NaN` is not a number that JSON has."),
        ("[-Infinity]", (1, 2), "`-Infinity` is not a number that JSON has."),
        ("[1e999]", (1, 2), "too large"),
        ("[01]", (1, 2), "`01` is not a number."),
        ("[-]", (1, 2), "`-` is here"),
        (f"[{2**63}]", (1, 2), "64 bits"),
        ("[" + "9" * 100_000 + "]", (1, 2), "64 bits"),
        ('["a\\u0000"]', (1, 2), "NUL"),
        ('["\\ud800"]', (1, 2), "surrogate"),
        ('{"\\udfff": 1}', (1, 2), "surrogate"),
        ('["a\nb"]', (1, 4), "cannot be read"),
        ('["a', (1, 2), "cannot be read"),
        ('["\\x"]', (1, 3), "cannot be read"),
        ("[1,]", (1, 4), "Remove the comma before it."),
        ('{"a": 1,}', (1, 9), "Remove the comma before it."),
        ("{a: 1}", (1, 2), "a key in double quotes"),
        ("['a']", (1, 2), "JSON has only double quotes."),
        ("[1] 2", (1, 5), "the end of the document should be"),
        ("[1 2]", (1, 4), "`,` or the end"),
        ("[1}", (1, 3), "`}` is here"),
        ('{"a" 1}', (1, 6), "`:` should be"),
        ("// no\n1", (1, 1), "JSON has no comments"),
        ("tru", (1, 1), "`tru` is not a value."),
        ("", (1, 1), "The document ends where a value should be."),
        ("[", (1, 2), "The document ends"),
        ('{"a":', (1, 6), "The document ends"),
        ("[" * 33 + "]" * 33, (1, 33), "more than 32 levels"),
        ('{"a":' * 33 + "1" + "}" * 33, (1, 161), "more than 32 levels"),
        ("- a", (1, 1), "`-` is here"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_json_is_strict(text: str, place: tuple[int, int], said: str) -> None:
    problem = problems_of(text, "json")[0]
    assert (problem.line, problem.column) == place
    assert said in str(problem)


def test_the_deepest_allowed_nesting_is_read() -> None:
    text = "[" * 32 + "]" * 32
    assert parse_document(text).data == parse_document(text, syntax="json").data == json.loads(text)


def test_many_problems_are_reported_at_once_and_know_their_path() -> None:
    problems = problems_of("a: &x 1\nb:\n  - c: !t 2\n  - c: 3\n    c: 4\n")
    assert [(problem.line, problem.path) for problem in problems] == [(1, "a"), (3, "b[0].c"), (5, "b[1]")]


def test_the_number_of_problems_is_bounded() -> None:
    assert len(problems_of("\n".join(f"- &a{number} 1" for number in range(1000)))) == 20


@pytest.mark.parametrize("count", [1_000, in_proof(10_000)])
def test_a_definition_of_many_steps_is_read(count: int) -> None:
    step = "  - {{name: s{0}, uses: a.b, with: {{id: {0}, to: [x, y]}}, timeout: 30s, retry: {{max_attempts: 3}}}}\n"
    document = parse_document("steps:\n" + "".join(step.format(number) for number in range(count)))
    assert isinstance(document.data, dict)
    steps = document.data["steps"]
    assert isinstance(steps, list)
    assert len(steps) == count
    assert document.position(("steps", count - 1, "name")) == (count + 1, 12)


@pytest.mark.parametrize("syntax", [in_proof("yaml"), "json"])
def test_more_values_than_the_budget_are_refused(syntax: Syntax) -> None:
    within = "[" + "1," * 199_998 + "1]"
    assert parse_document(within, syntax=syntax).data == [1] * 199_999
    assert "more than 200000 values" in the_problem_of("[" + "1," * 199_999 + "1]", syntax).message


@pytest.mark.parametrize("text", ["#" * (MAX_BYTES + 1), b"#" * (MAX_BYTES + 1), "#" + "é" * (MAX_BYTES // 2)])
def test_a_document_over_the_size_limit_is_refused_unread(text: str | bytes) -> None:
    assert "larger than 4 MB" in the_problem_of(text).message


# Every bomb must be defused in a moment: each runs in its own interpreter, so that a crash or a hang is seen as one.
BOMBS = {
    "brackets": "'[' * 400_000",
    "braces": "'{a: ' * 100_000",
    "dashes": "'- ' * 200_000",
    "question marks": "'? ' * 200_000",
    "mixed nesting": "'[{a: ' * 80_000",
    "aliases": (
        "'a0: &a0 [x]\\n' + ''.join(f'a{n}: &a{n} [' + ', '.join([f'*a{n-1}'] * 9) + ']\\n' for n in range(1, 12))"
    ),
    "self reference": "'&a [*a, *a]'",
    "merge keys": (
        "'a0: &a0 {x: 1}\\n' + "
        "''.join(f'a{n}: &a{n} {{<<: [' + ', '.join([f'*a{n-1}'] * 9) + ']}\\n' for n in range(1, 12))"
    ),
    "one long number": "'a: ' + '9' * 4_000_000",
    "one long float": "'a: ' + '9' * 4_000_000 + '.0'",
    "one long plain text": "'a: ' + 'b ' * 2_000_000",
    "one long quoted text": "'a: \"' + '\\\\\\\\' * 2_000_000",
    "openings": "'a: {' + '${{' * 1_300_000",
    "openings on lines": "'{' + '${{\\n' * 1_000_000",
    "quotes after an opening": "'{a: ${{ ' + '\\'' * 4_000_000",
    "equal keys": "'a: 1\\n' * 800_000",
    "anchors": "'- &a 1\\n' * 500_000",
    "empty lines": "'\\n' * 4_000_000",
    "indents": "'\\n'.join(' ' * n + 'a:' for n in range(2800))",
    "tags": "'!' * 4_000_000",
    "percent signs": "'%' * 4_000_000",
}


FEW_BOMBS = ("brackets", "braces", "aliases", "self reference", "merge keys", "one long number", "indents")


@pytest.mark.parametrize("syntax", ["yaml", "json"])
@pytest.mark.parametrize("name", short_and_all(FEW_BOMBS, BOMBS))
def test_a_bomb_is_refused_or_read_quickly_and_never_crashes(name: str, syntax: Syntax) -> None:
    bomb = BOMBS[name]
    program = (
        "from stepkeep.definition.text.document import parse_document\n"
        "from stepkeep.kernel.errors import DefinitionError\n"
        f"try: parse_document({bomb}, syntax={syntax!r})\n"
        "except DefinitionError as error: assert 0 < len(error.problems) <= 20\n"
        "print('survived')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("survived\n", "", 0)


HOSTILE = "&*!|>%@`'\"#{}[],:?-~<=.\\\n\r\t $012eExoinfa_ué😀\x00\x1b\ufeff\u2028\ud800"


@drawn(
    50,
    300,
    st.text(HOSTILE, max_size=40) | st.text(max_size=40) | st.binary(max_size=40),
    st.sampled_from(["yaml", "json"]),
)
def test_any_text_is_storable_data_or_a_refusal_with_a_place(text: str | bytes, syntax: Syntax) -> None:
    data, problems = read_or_refuse(text, syntax)
    assert json.dumps(data, allow_nan=False).encode()
    assert all(one.line >= 1 and one.column >= 1 and one.message for one in problems)
    assert (data is None) or not problems


# Files


def test_a_file_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("on: 1")
    (tmp_path / "a.json").write_text('{"on": 1}')
    assert read_document(tmp_path / "a.yaml").data == read_document(tmp_path / "a.json").data == {"on": 1}
    (tmp_path / "b.json").write_text("on: 1")
    with pytest.raises(DefinitionError, match=r"b\.json:1:1: "):
        read_document(tmp_path / "b.json")


@pytest.mark.parametrize("name", ["missing.yaml", ".", "nul\x00.yaml"])
def test_a_file_that_cannot_be_read_is_a_problem_not_a_traceback(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match=r"This file cannot be read: .+\."):
        read_document(f"{tmp_path}/{name}")


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "huge.yaml").open("wb") as huge:
        huge.truncate(10**12)
    with pytest.raises(DefinitionError, match="larger than 4 MB"):
        read_document(tmp_path / "huge.yaml")


# Did you mean


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("creat_account", "create-account"),
        ("CREATE.ACCOUNT", "create-account"),
        ("notfy", "notify"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found_or_none(name: str, meant: str | None) -> None:
    assert nearest(name, ["create-account", "close-account", "notify"]) == meant


def test_the_nearest_of_very_many_and_very_long_names_is_found() -> None:
    names = [f"step-{number}" for number in range(10_000)] + ["x" * 100_000, "deploy"]
    assert nearest("deplyo", names) == "deploy"
    assert nearest("y" * 1_000_000, names) is None
