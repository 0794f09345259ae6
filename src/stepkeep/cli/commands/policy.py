"""`stepkeep policy`: check a policy document and try it on its cases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED

app = typer.Typer(help="Rules that allow, hold or deny steps before they run.", no_args_is_help=True)


def test(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy document, with its cases.")],
) -> int:
    """Judge every case of a policy document, without a database. Exit status 1 if one has another verdict.

    A document without cases is only checked.
    """
    from stepkeep.definition.policy import CompiledPolicy, failed_cases, load_policy

    document, cases = load_policy(file)
    failed = failed_cases(CompiledPolicy(document), cases)
    if settings.json:
        answer(
            {
                "policy": document.name,
                "rules": [rule.name for rule in document.rules],
                "cases": len(cases),
                "ok": not failed,
                "failed": [
                    {
                        "case": case.name,
                        "expected": {"effect": case.expect, "rule": case.rule},
                        "given": {"effect": verdict.effect, "rule": verdict.rule, "reason": verdict.reason},
                    }
                    for case, verdict in failed
                ],
            }
        )
        return FAILED if failed else SUCCEEDED
    for case, verdict in failed:
        expected = case.expect if case.rule is None else f"{case.expect} by {case.rule}"
        given = verdict.effect if verdict.rule is None else f"{verdict.effect} by {verdict.rule}"
        why = f" ({verdict.reason})" if verdict.reason else ""
        say(f"{case.name}: expected {expected}, the policy says {given}{why}")
    rules = "1 rule" if len(document.rules) == 1 else f"{len(document.rules)} rules"
    tried = "no cases" if not cases else f"{len(cases) - len(failed)} of {len(cases)} cases as expected"
    say(f"policy {document.name}: {rules}, {tried}")
    return FAILED if failed else SUCCEEDED


app.command("test")(with_settings(test))
