"""Planted bugs of limits: how places are counted, given back and waited for, and how rates are charged.

Data like `mutants`, which has them among its own. `test_limited` hunts them in the corner "full keys".
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

LIMIT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "limit-counted-without-lock",
        "claims count what is held under a key before they have its lock",
        (
            Edit(
                "simulation.database:Session.lock_limits",
                'await self._database.locks.take(self, ("limit", key))',
                "pass",
            ),
        ),
    ),
    Mutant(
        "limit-own-claims-uncounted",
        "one transaction gives a place to several steps: it counts none of its own claims",
        (Edit("kernel.decide.limits:take", "use.held + weight, ()", "use.held, ()"),),
    ),
    Mutant(
        "limit-one-more",
        "one claim more than the rule says has a place",
        (Edit("kernel.decide.limits:find_place", "> rule.running", "> rule.running + 1"),),
    ),
    Mutant(
        "limit-release-lost",
        "a claim that ends without its step having ended gives no place back",
        (Edit("operations.pipeline.batch:ended_places", "if ends and", "if ends and step.settled is not None and"),),
    ),
    Mutant(
        "limit-resumption-charged",
        "a rate is charged again for an attempt that goes on after a wait or a release",
        (Edit("kernel.decide.limits:asked_of", "0 if is_paid else one.units", "one.units"),),
    ),
    Mutant(
        "limit-rate-uncharged",
        "a rate is told, and never charged",
        (Edit("kernel.decide.limits:take", "use.tat = _arrival(rule, use, asked.units, now)", "pass"),),
    ),
    Mutant(
        "limit-burst-doubled",
        "twice the burst of a rate may begin at once",
        (Edit("kernel.decide.limits:find_place", "max(rule.burst,", "max(2 * rule.burst,"),),
    ),
    Mutant(
        "limit-parked-and-forgotten",
        "a step is parked in no line, so that nothing looks for it",
        (
            Edit(
                "operations.limits.grants:KeyGrants.write",
                "change.begun.append(",
                "str(",
            ),
        ),
    ),
    Mutant(
        "limit-line-asleep-behind-a-rate",
        "a line that waits for a rate is not looked at when the rate has a place",
        (Edit("kernel.decide.limits:find_place", "return Full(due_at)", "return Full()"),),
    ),
    Mutant(
        "limit-taken-beside-a-full-one",
        "a step has its places although one of its keys is full",
        (
            Edit(
                "operations.limits.grants:KeyGrants.find_full",
                "if full is None and (alone or not is_behind):",
                "if full is None or len(asked) > 1:",
            ),
        ),
    ),
    Mutant(
        "limit-of-a-call-ignored",
        "a call of a flow counts under no limit",
        (Edit("kernel.plan:Plan._called", "keys=_keys(definition, self.definition, self.compiler)", "keys=None"),),
    ),
    Mutant(
        "limit-key-of-a-case-lost",
        "a case of a choice counts under a limit without its key",
        (
            Edit(
                "kernel.composition.elements:grow",
                "limited=found.limited or note.limited",
                "limited=note.limited",
            ),
        ),
    ),
    Mutant(
        "limit-not-asked-for",
        "a claim of a limited step is accepted without its places",
        (
            Edit("kernel.decide.execution:_check_limits", "if given != asked:", "if False:"),
            Edit(
                "operations.limits.resource_claims:ResourceClaimBatch._choose",
                "limits=places.take(step, planned.name, asked, now) if asked else ()",
                "limits=()",
            ),
        ),
    ),
)
