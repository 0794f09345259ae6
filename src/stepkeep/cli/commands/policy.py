"""`stepkeep policy`: try a policy document on its cases, publish and list revisions, and replay verdicts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import By, arg
from stepkeep.cli.asking import of_run, tell
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Needs, Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.policies import PolicyRevision, PolicyView, Replay

app = typer.Typer(help="Rules that allow, hold or deny steps before they run.", no_args_is_help=True)


def test(
    settings: Settings,
    file: Annotated[Path, arg("FILE", "The policy document, with its cases.")],
) -> int:
    """Judge every case of a policy document, without a database. Exit status 1 if one has another verdict.

    A document without cases is only checked.
    """
    from stepkeep.definition.compiled_policy import CompiledPolicy
    from stepkeep.definition.policy import failed_cases, load_policy

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


def publish(
    settings: Settings,
    file: Annotated[Path, arg("FILE", "The policy document. Its cases must hold.")],
    by: By = None,
) -> int:
    """Publish a policy as the next revision of the tenant.

    It counts for every step that opens from then on, in other processes at most two seconds later.
    """
    return _told(settings, lambda engine: engine.publish_policy(file, by=by))


def off(settings: Settings, by: By = None) -> int:
    """Publish a revision without rules. Only the rules of definitions count from then on."""
    return _told(settings, lambda engine: engine.policy_off(by=by))


def listed(settings: Settings) -> int:
    """List the revisions of the tenant's policy, newest first."""
    return tell(
        settings,
        lambda engine: engine.list_policies(),
        lambda found: [_line(one) for one in found.policies] or "no policy is published",
    )


def show(
    settings: Settings,
    revision: Annotated[
        int | None, arg("[REVISION]", "Its number; the newest without one.", min=1, max=2147483647)
    ] = None,
) -> int:
    """Show a revision of the tenant's policy with its rules."""

    def words(found: PolicyView) -> Iterator[str]:
        yield _line(found)
        for rule in found.document["rules"]:
            about = " ".join(f"{key}: {', '.join(rule[key])}" for key in ("workflows", "steps") if key in rule)
            when = f" when {rule['when']}" if "when" in rule else ""
            yield f"  {rule['name']}: {rule['then']}{when}" + (f" ({about})" if about else "")

    return tell(settings, lambda engine: engine.show_policy(revision), words)


def replay(
    settings: Settings,
    run: Annotated[str, arg("RUN", "The run; a part of its id is enough.")],
) -> int:
    """Evaluate every verdict of a run again. Exit status 1 if one has another answer.

    It uses the facts in the journal and the revisions that were asked then.
    """

    def words(found: Replay) -> Iterator[str]:
        for one in found.verdicts:
            again = "the same again" if one.ok else f"now {one.again.effect} by {one.again.rule}"
            yield f"entry {one.entry}: {one.step} {one.effect} by {one.rule or 'no rule'}: {again}"
        if not found.verdicts:
            yield f"run {found.run} has no verdict of a policy"

    asked = of_run(run, lambda engine, found: engine.replay_policy(found))
    return tell(settings, asked, words, fails=lambda found: not found.ok)


def _line(one: PolicyRevision) -> str:
    return f"revision {one.revision}: {one.policy} by {one.published_by} at {one.published_at}"


def _told(settings: Settings, change: Callable[[AsyncEngine], Awaitable[PolicyRevision]]) -> int:
    return tell(settings, change, lambda one: f"{_line(one)} is published", under="policy", creates=True)


app.command("test")(with_settings(test, Needs.NOTHING))
app.command("publish")(with_settings(publish))
app.command("list")(with_settings(listed))
app.command("show")(with_settings(show))
app.command("off")(with_settings(off))
app.command("replay")(with_settings(replay))
