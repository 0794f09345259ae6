"""`stepkeep policy`: try a policy document on its cases, publish and list revisions, and replay verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.answering import Words, print_value
from stepkeep.cli.arguments import arg
from stepkeep.cli.command import Commands, CommandValues
from stepkeep.cli.settings import CommandNeeds, Settings

if TYPE_CHECKING:
    from stepkeep.operations.people.policies import PolicyList, PolicyRevision, PolicyView, Replay

policy = Commands("policies", "Rules that allow, hold or deny steps before they run.")


@policy.command("test", CommandNeeds.NOTHING)
def test(
    settings: Settings,
    file: Annotated[Path, arg("FILE", "The policy document, with its cases.")],
) -> int:
    """Judge every case of a policy document, without a database. Exit status 1 if one has another verdict.

    A document without cases is only checked.
    """
    from stepkeep.definition.policy import CompiledPolicy, failed_cases, load_policy

    document, cases = load_policy(file)
    failed = failed_cases(CompiledPolicy(document), cases)
    view = {
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

    def words() -> Iterator[str]:
        for case, verdict in failed:
            expected = case.expect if case.rule is None else f"{case.expect} by {case.rule}"
            given = verdict.effect if verdict.rule is None else f"{verdict.effect} by {verdict.rule}"
            why = f" ({verdict.reason})" if verdict.reason else ""
            yield f"{case.name}: expected {expected}, the policy says {given}{why}"
        rules = "1 rule" if len(document.rules) == 1 else f"{len(document.rules)} rules"
        tried = "no cases" if not cases else f"{len(cases) - len(failed)} of {len(cases)} cases as expected"
        yield f"policy {document.name}: {rules}, {tried}"

    return print_value(settings, view, words(), failed=failed)


def _published(one: PolicyRevision, _: CommandValues) -> str:
    return f"{_line(one)} is published"


policy.operation(
    "publish",
    "publish_policy",
    """Publish a policy as the next revision of the tenant.

    It counts for every step that opens from then on, in other processes at most two seconds later.
    """,
    under="policy",
    creates=True,
    policy=arg("FILE", "The policy document. Its cases must hold.", typed_as="file", kind=Path),
)(_published)


@policy.operation("list", "list_policies")
def listed(found: PolicyList, _: CommandValues) -> Words:
    """List the revisions of the tenant's policy, newest first."""
    return [_line(one) for one in found.policies] or "no policy is published"


@policy.operation("show", "show_policy", revision=arg("[REVISION]", "Its number; the newest without one."))
def show(found: PolicyView, _: CommandValues) -> Iterator[str]:
    """Show a revision of the tenant's policy with its rules."""
    yield _line(found)
    for rule in found.document["rules"]:
        about = " ".join(f"{key}: {', '.join(rule[key])}" for key in ("workflows", "steps") if key in rule)
        when = f" when {rule['when']}" if "when" in rule else ""
        yield f"  {rule['name']}: {rule['then']}{when}" + (f" ({about})" if about else "")


policy.operation(
    "off",
    "policy_off",
    "Publish a revision without rules. Only the rules of definitions count from then on.",
    under="policy",
    creates=True,
)(_published)


@policy.operation(
    "replay",
    "replay_policy",
    fails=lambda found: not found.ok,
    run_id=arg("RUN", "The run; a part of its id is enough.", typed_as="run", is_run=True),
)
def replay(found: Replay, _: CommandValues) -> Iterator[str]:
    """Evaluate every verdict of a run again. Exit status 1 if one has another answer.

    It uses the facts in the journal and the revisions that were asked then.
    """
    for one in found.verdicts:
        again = "the same again" if one.ok else f"now {one.again.effect} by {one.again.rule}"
        yield f"entry {one.entry}: {one.step} {one.effect} by {one.rule or 'no rule'}: {again}"
    if not found.verdicts:
        yield f"run {found.run} has no verdict of a policy"


def _line(one: PolicyRevision) -> str:
    return f"revision {one.revision}: {one.policy} by {one.published_by} at {one.published_at}"
