"""`${{ secret.NAME }}` in definitions: where it may stand, what it asks of workers, and what looks like a secret."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.definition.expressions.scope import secrets_read
from stepkeep.definition.native.reader import check_text, load_text

HEAD = "workflow: demo\ntimeout: 1h\nsteps:\n"


def problems(text: str) -> list[str]:
    return [f"{problem.message} {problem.hint}" for problem in check_text(text, "test.yaml", None).problems]


def warnings(text: str) -> list[str]:
    report = check_text(text, "test.yaml", None)
    assert report.problems == ()
    return [f"{warning.path}: {warning.message}" for warning in report.warnings]


@pytest.mark.parametrize(
    "work",
    [
        "uses: x, with: {token: '${{ secret.TOKEN }}'}",
        "uses: x, with: {headers: ['Bearer ${{ secret.TOKEN }}']}",
        "command: {argv: [x, '--token=${{ secret.TOKEN }}'], env: {T: '${{ secret[\"TOKEN\"] }}'}}",
        "http: {url: 'https://x.test/${{ secret.TOKEN }}', headers: {Authorization: 'Bearer ${{ secret.TOKEN }}'}}",
        "http: {url: 'https://x.test', method: POST, body: {token: '${{ secret.TOKEN }}'}}",
    ],
)
def test_a_secret_stands_in_inputs_arguments_variables_headers_and_bodies(work: str) -> None:
    definition = load_text(f"{HEAD}  - {{name: a, timeout: 1s, {work}}}", "test.yaml")
    assert definition.steps[0].capabilities == ("secret:TOKEN",)
    assert "TOKEN" in str(definition.steps[0])


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "  - {name: a, uses: x, if: 'secret.TOKEN == \"x\"'}",
        HEAD + "  - {name: a, uses: x, rules: ['secret.TOKEN != \"\"']}",
        "workflow: demo\noutput: '${{ secret.TOKEN }}'\nsteps: [{name: a, uses: x}]",
        "workflow: demo\nrules: ['secret.TOKEN == \"\"']\nsteps: [{name: a, uses: x}]",
    ],
)
def test_a_secret_is_refused_where_its_value_would_be_stored_or_decide(text: str) -> None:
    [said] = problems(text)
    assert said.startswith("A secret cannot be read here: what is evaluated here is stored, or decides what is.")


@pytest.mark.parametrize("place", ["wait: '${{ secret.TOKEN }}'", "approval: '${{ secret.TOKEN }}'"])
def test_a_secret_is_refused_in_texts_that_are_taken_as_they_are(place: str) -> None:
    assert "Expressions are not evaluated here" in problems(f"{HEAD}  - {{name: a, {place}}}")[0]


@pytest.mark.parametrize(
    "expression",
    ["'Bearer ' + secret.TOKEN", "has(secret.TOKEN)", "secret.TOKEN.size()", "[secret.TOKEN]", "secret.A + secret.B"],
)
def test_nothing_is_computed_with_a_secret(expression: str) -> None:
    [said] = problems(f'{HEAD}  - {{name: a, uses: x, with: {{v: "${{{{ {expression} }}}}"}}}}')
    assert "A secret stands alone in its `${{ }}`" in said


@pytest.mark.parametrize("expression", ["secret", "secret[input.name]", "secret.a.b", 'secret["a-b"]', "secret[0]"])
def test_a_secret_is_named_literally(expression: str) -> None:
    said = problems(f"{HEAD}  - {{name: a, uses: x, with: {{v: '${{{{ {expression} }}}}'}}}}")
    assert any("A secret has one name" in one or "stands alone" in one for one in said), said


def test_an_undo_asks_for_its_own_secrets() -> None:
    text = (
        "  - {name: a, uses: x, capabilities: [gpu], with: {t: '${{ secret.A }}'}, "
        "undo: {uses: y, with: {t: '${{ secret.B }}'}}}\n"
        "  - {name: b, uses: x, with: {t: '${{ secret.A }}'}, undo: {uses: y}}\n"
        "  - {name: c, uses: x, with: {t: '${{ secret.A }}'}, undo: {uses: y, with: {t: '${{ secret.A }}'}}}\n"
    )
    first, second, third = load_text(HEAD + text, "test.yaml").steps
    assert (first.capabilities, first.undo and first.undo.capabilities) == (("gpu", "secret:A"), ("gpu", "secret:B"))
    assert second.undo is not None
    assert second.undo.capabilities == ()
    assert third.undo is not None
    assert third.undo.capabilities is None


def test_python_writes_a_secret_as_an_expression() -> None:
    flow = sk.Workflow("demo")
    flow.http("call", "https://x.test", headers={"Authorization": f"Bearer {sk.secret('TOKEN')}"})
    flow.step("pay", "pay", inputs={"key": sk.secret("STRIPE")})
    call, pay = flow.definition().steps
    assert (call.capabilities, pay.capabilities) == (("secret:TOKEN",), ("secret:STRIPE",))
    assert pay.inputs == {"key": "${{ secret.STRIPE }}"}


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a b", "x" * 101, 5, None])
def test_python_refuses_what_is_no_name_of_a_secret(name: object) -> None:
    with pytest.raises(sk.InvalidInput, match="letters, digits and _"):
        sk.secret(name)  # type: ignore[arg-type]


def test_python_refuses_a_computed_secret_with_the_line_of_the_call() -> None:
    flow = sk.Workflow("demo")
    flow.step("pay", "pay", inputs={"key": "Bearer " + sk.secret("STRIPE")})
    with pytest.raises(sk.DefinitionError, match="stands alone"):
        flow.definition()


def test_secrets_are_found_in_plain_data() -> None:
    assert secrets_read({"a": ["${{ secret.B }} ${{secret.A}}", "${{ input.secret }}", "secret.C", 5]}) == ["A", "B"]


@pytest.mark.parametrize(
    "work",
    [
        "uses: x, with: {password: hunter2-hunter2}",
        "uses: x, with: {nested: [{api_key: 0123456789abcdef}]}",
        "http: {url: 'https://x.test', headers: {Authorization: 'Bearer 0123456789abcdef'}}",
        "http: {url: 'https://user:hunter2@x.test/'}",
        "command: {argv: [x], env: {DB_PASSWORD: hunter2-hunter2}}",
        "command: {argv: [x, 'AKIAABCDEFGHIJKLMNOP']}",
        "uses: x, with: {pem: '-----BEGIN RSA PRIVATE KEY-----'}",
    ],
)
def test_a_literal_that_looks_like_a_secret_is_warned_of_and_not_quoted(work: str) -> None:
    [said] = warnings(f"{HEAD}  - {{name: a, timeout: 1s, {work}}}")
    assert "of step `a` looks like a secret, and a definition is stored and shown." in said
    assert not any(part in said for part in ("hunter2", "0123456789", "AKIA", "BEGIN"))


@pytest.mark.parametrize(
    "work",
    [
        "uses: x, with: {password: '${{ secret.PASSWORD }}', token: ''}",
        "uses: x, with: {token_count: 12345678, note: 'the password is elsewhere'}",
        "http: {url: 'https://x.test/tokens', headers: {Authorization: 'Bearer ${{ input.token }}'}}",
    ],
)
def test_references_and_ordinary_texts_are_not_warned_of(work: str) -> None:
    assert warnings(f"{HEAD}  - {{name: a, timeout: 1s, {work}}}") == []
