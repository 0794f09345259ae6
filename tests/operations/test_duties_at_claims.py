"""Duties are asked when a worker claims, by the owner of its key.

A step is passed over for an owner that they rule out, and holds up nothing behind it.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.decide.resources import AWAITS_RESOURCES
from stepkeep.kernel.definition import Approval, Definition, Incompatible, Map
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.limits import resource_claims
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.services import Service, encode_service
from stepkeep.operations.runs.diagnosis import explain
from stepkeep_lab.storecheck.bench import NAMES
from tests.store.raw import PostgresRaw, SqliteRaw
from tests.workbench import TENANT, Bench, count_calls, gate, on, report_of, task

PAYOUT = Definition(
    name="payout",
    version=1,
    steps=(task("prepare"), task("pay", 1, ["prepare"])),
    duties=(Incompatible(steps=("prepare", "pay")),),
)
PLAIN = Definition(name="plain", version=1, steps=(task("p"),))
BESIDE = Definition(
    name="beside",
    version=1,
    steps=(task("a"), task("b", 1), task("c", 2)),
    duties=(Incompatible(steps=("a", "b")),),
)


async def claimer(bench: Bench, owner: str | None, slots: int = 0) -> Claimer:
    """A worker of this owner, registered once."""
    known: dict[str | None, Any] = bench.__dict__.setdefault("owned", {})
    if owner not in known:
        known[owner] = await workers.register(bench.store, tenant=TENANT, app="bench", capacity=9, owner=owner)
        offer = encode_service(Service(handlers=("noop",), places=9, free=9, free_threads=9))
        await bench.store.report_worker(TENANT, known[owner].no, offer)
    row = known[owner]
    NAMES[row.no] = row.id
    queues = frozenset(queue for queue, _ in await bench.store.list_queues(TENANT))
    return Claimer(actor=row.id, worker=row.no, lease=None, slots=slots, queues=queues, owner=owner)


async def claimed(bench: Bench, owner: str | None, limit: int = 10) -> list[Claim]:
    return await bench.transactor.claim(await claimer(bench, owner), limit=limit)


async def prepared(bench: Bench, definition: Definition = PAYOUT, by: str = "bea", runs: int = 1) -> list[str]:
    """Runs whose first step a worker of this owner has executed."""
    started = [await bench.start(definition) for _ in range(runs)]
    who = await claimer(bench, by)
    claims = [claim for run in started for claim in await bench.transactor.claim(who, limit=1, run=(TENANT, run))]
    assert {claim.planned.name for claim in claims} == {definition.steps[0].name}
    await bench.report_all(claims)
    return started


async def causes(bench: Bench, run: str) -> list[tuple[str, str]]:
    found = await explain(bench.transactor, run, None, tenant=TENANT)
    return [(cause.code.value, cause.sentence) for cause in found.causes]


async def test_one_owner_does_not_execute_two_incompatible_steps(database_url: str) -> None:
    async with on(database_url) as bench:
        [run] = await prepared(bench)
        assert await claimed(bench, "bea") == []
        assert await claimed(bench, "Bea") == [], "names that look the same are one person"
        [claim] = await claimed(bench, "cyd")
        assert (claim.run_id, claim.planned.name) == (run, "pay")
        await bench.report(claim)
        assert await bench.state(run) is RunState.SUCCEEDED
        journal = [open_entry(entry.body) for entry in await bench.store.read_journal(TENANT, run)]
        told = [cause.detail for entry in journal for cause in entry.causes if cause.event == "step_claimed"]
        assert told == [{"owner": "bea"}, {"owner": "cyd"}]


async def test_a_worker_without_a_key_is_no_person_and_has_no_duties(database_url: str) -> None:
    async with on(database_url) as bench:
        [run] = await prepared(bench)
        [claim] = await claimed(bench, None)
        assert claim.run_id == run
        other = await bench.start(PAYOUT)
        [first] = await claimed(bench, None)
        await bench.report_all([claim, first])
        [second] = await claimed(bench, None)
        assert (second.run_id, second.planned.name) == (other, "pay")


async def test_a_step_that_is_passed_over_holds_up_nothing_behind_it(database_url: str) -> None:
    async with on(database_url) as bench:
        await prepared(bench, runs=3)
        behind = await bench.start(PLAIN)
        free = await bench.start(PAYOUT)
        found = [await claimed(bench, "bea", 1), await claimed(bench, "bea", 1)]
        assert {claim.run_id for claims in found for claim in claims} == {behind, free}
        assert await claimed(bench, "bea", 1) == []


async def test_what_was_ruled_out_is_not_asked_again_at_each_claim(database_url: str) -> None:
    """A worker that polls does not claim and meet the refusal in a loop."""

    async with on(database_url) as bench:
        await prepared(bench, runs=3)
        assert await claimed(bench, "bea", 1) == []
        changes = count_calls(bench, "change")
        for _ in range(5):
            assert await bench.transactor._claim_aside(await claimer(bench, "bea"), 1, None) == []
        assert changes == []
        free = await bench.start(PAYOUT)
        assert [claim.run_id for claim in await claimed(bench, "bea", 1)] == [free], "it looks again at once"
        assert len(await claimed(bench, "cyd")) == 3, "it is passed over for one owner alone"


async def test_more_steps_than_a_page_are_passed_over_and_the_next_one_is_claimed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as bench:
        monkeypatch.setattr(resource_claims, "PAGE", 3)
        monkeypatch.setattr(resource_claims, "MOST_ASKED", 2)
        await prepared(bench, runs=7)
        [free] = await prepared(bench, by="cyd")
        [claim] = await claimed(bench, "bea", 1)
        assert (claim.run_id, claim.planned.name) == (free, "pay")


async def test_a_report_chains_no_step_that_duties_limit(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await bench.start(PAYOUT)
        [claim] = await claimed(bench, "bea")
        answers, chained = await bench.transactor.report([report_of(claim)], await claimer(bench, "bea", slots=4))
        assert (len(answers), chained) == (1, [])
        [pay] = await claimed(bench, "cyd")
        assert (pay.run_id, pay.planned.name) == (run, "pay")


async def test_one_transaction_claims_one_of_two_incompatible_steps(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(BESIDE)
        claims = await claimed(bench, "bea") + await claimed(bench, "bea")
        assert sorted(claim.planned.name for claim in claims) == ["a", "c"]
        # The step is held: its executor counts before it has reported.
        assert await claimed(bench, "bea") == []
        [other] = await claimed(bench, "cyd")
        assert other.planned.name == "b"


async def test_the_owner_of_a_worker_that_handed_a_step_back_counts_as_its_executor(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as bench:
        monkeypatch.setattr(resource_claims, "PASSED_OVER_SECONDS", -1.0)
        await bench.start(BESIDE)
        claims = {claim.planned.name: claim for claim in await claimed(bench, "bea") + await claimed(bench, "bea")}
        await bench.report(claims["a"], Released())
        [again] = await claimed(bench, "bea")
        assert again.planned.name == "a"
        await bench.report(again, Released())
        assert [claim.planned.name for claim in await claimed(bench, "cyd", 1)] == ["b"]


async def test_the_person_who_decided_does_not_execute_what_is_incompatible(database_url: str) -> None:
    async with on(database_url) as bench:
        signed = Definition(
            name="signed",
            version=1,
            steps=(gate("sign", approval=Approval()), task("pay", 1, ["sign"])),
            duties=(Incompatible(steps=("sign", "pay")),),
        )
        run = await bench.start(signed)
        await bench.approve(run, "sign", by="bea")
        assert await claimed(bench, "bea") == []
        [claim] = await claimed(bench, "cyd")
        assert claim.run_id == run


async def test_the_person_who_signed_does_not_execute_a_step_whose_executor_may_not_sign(database_url: str) -> None:
    """`not: [executed:pay]` names the pair; which of the two comes first makes no difference."""

    async with on(database_url) as bench:
        signed = Definition(
            name="signed",
            version=1,
            steps=(
                gate("sign", approval=Approval(excluded=("executed:pay",))),
                task("pay", 1, ["sign"]),
            ),
        )
        run = await bench.start(signed)
        await bench.approve(run, "sign", by="bea")
        assert await claimed(bench, "bea") == []
        await claimer(bench, "bea")
        [(code, said)] = await causes(bench, run)
        assert code == "duty"
        assert "workers of Bea" not in said
        assert "workers of bea are passed over: bea decided sign (maker_checker); it needs a worker of another" in said
        assert len(await claimed(bench, "cyd")) == 1


async def test_explain_names_the_owners_that_are_ruled_out_and_what_is_needed(database_url: str) -> None:
    async with on(database_url) as bench:
        [run] = await prepared(bench)
        found = await explain(bench.transactor, run, "pay", tenant=TENANT)
        [cause] = found.causes
        assert cause.code == "duty"
        assert "workers of bea are passed over: bea acted on prepare (incompatible)" in cause.sentence
        assert cause.sentence.endswith("it needs a worker of another owner.")
        assert cause.command[-2:] == ("--key-file", "FILE")
        await claimer(bench, "cyd")
        [(code, said)] = await causes(bench, run)
        assert (code, "workers of bea are passed over" in said) == ("soon", True), said


async def test_elements_of_a_map_count_for_their_step(database_url: str) -> None:
    async with on(database_url) as bench:
        mapped = Definition(
            name="mapped",
            version=1,
            steps=(
                task("prepare"),
                task("m", 1, ["prepare"], growth=Map(over="${{ [1, 2] }}", max=5)),
            ),
            duties=(Incompatible(steps=("prepare", "m")),),
        )
        [run] = await prepared(bench, mapped)
        assert await claimed(bench, "bea") == []
        claims = await claimed(bench, "cyd")
        assert [claim.planned.name for claim in claims] == ["m[0]", "m[1]"]
        assert {claim.run_id for claim in claims} == {run}


async def test_a_step_with_resources_and_duties_takes_nothing_for_an_owner_that_is_ruled_out(database_url: str) -> None:
    async with on(database_url) as bench:
        needing = replace(
            PAYOUT,
            name="needing",
            steps=(PAYOUT.steps[0], replace(PAYOUT.steps[1], resources={"bank": "exclusive"})),
        )
        await prepared(bench, needing)
        only = Definition(name="only", version=1, steps=(replace(task("p"), resources={"bank": "exclusive"}),))
        behind = await bench.start(only)
        [claim] = [*await claimed(bench, "bea", 1), *await claimed(bench, "bea", 1)]
        assert claim.run_id == behind
        assert await claimed(bench, "cyd") == [], "the resource is held"
        await bench.report(claim)
        [pay] = await claimed(bench, "cyd")
        assert pay.planned.name == "pay"


async def test_steps_that_were_ready_before_duties_were_asked_at_claims_are_passed_over_too(database_url: str) -> None:
    """Their rows are not set aside. Neither an optimistic claim nor one with locks gets stuck at them."""

    async with on(database_url) as bench:
        await prepared(bench, runs=3)
        raw = (SqliteRaw if database_url.startswith("sqlite") else PostgresRaw)(database_url)
        aside = AWAITS_RESOURCES
        await raw.execute(f"update steps set ready_at = ready_at - {aside} where ready_at > {aside}")
        behind = await bench.start(PLAIN)
        for _ in range(2):
            found = await claimed(bench, "bea", 1)
            if found:
                break
        assert [claim.run_id for claim in found] == [behind]
        assert await claimed(bench, "bea", 1) == []
        assert len(await claimed(bench, "cyd")) == 3
