"""What is written is what is read: every row, every field, through every door that shows it."""

from msgspec.structs import asdict, replace
from tests.store.values import (
    TENANT,
    WORKER,
    a_message,
    a_run,
    a_step,
    an_entry,
    details,
    finished,
    key,
    load,
    moved,
    new_run,
    ready,
    run_id,
    running,
    save,
    settled,
    want,
    writes,
)

from stepkeep.kernel.definition import Approval, QueueSpec, Wait
from stepkeep.kernel.machine.rows import (
    Adopted,
    Attempt,
    Ballot,
    Called,
    Details,
    Grown,
    Limited,
    Note,
    Opening,
    OutboxEntry,
    Persons,
    Run,
    Step,
    rows_of,
)
from stepkeep.kernel.machine.states import (
    AttemptState,
    Category,
    OnFailure,
    Rollback,
    RunState,
    StepState,
    StopCause,
)
from stepkeep.store.change import IdempotencyKey, More, RunChange, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter

FULL_RUN = a_run(
    1,
    RunState.STOPPING,
    priority=5,
    open=4,
    moving=3,
    leased=2,
    failed=1,
    undoing=6,
    inbox=7,
    cause=StopCause.TIMEOUT,
    policy=OnFailure.COMPENSATE,
    category=Category.POISON,
    error="es fehlt ‘etwas’ 🧩",
    rollback=Rollback.PARTIAL,
    due_at=2**53 + 1,
    started_at=11,
    business_key="order/1",
    moved_at=13,
)
FULL_NOTE = Note(
    limited=(Limited(key="é", units=3), Limited(key="")),
    paid=2,
    event="paid",
    takes_timeouts=True,
    held=True,
    woken_by='{"message":{"n":1.50}}',
    token="ab" * 32,
    output='{ "kept" : [1, 2.0, "x"] }',
    record='{"by":"user:ann"}',
    checked=4,
    next=9,
    exhausted=True,
    spent=3,
    began_at=1_700_000_000_000_000,
    terms=Approval(prompt="Pay?", roles=("finance",), quorum=2, deadline=60),
    permit="large@3",
    opening=Opening(
        activation=7,
        at=8,
        level=1,
        deadline=9,
        shown="cd" * 32,
        ballots=(
            Ballot(person="ann", approve=True, at=8, on_behalf_of="bea"),
            Ballot(person="cyd", approve=False, at=9),
        ),
    ),
    deciders=("ann", "bea", "cyd"),
    lent=(("ann", "bea"),),
    shown="ef" * 32,
    persons=Persons(executed=("dan",), decided=("ann", "bea"), lent=(("ann", "bea"),), shown=("ef" * 32,), many=True),
    gathered=('{"n":1}', '{"n":2}'),
    takes=Wait(event="paid", accepts="message.n > 0", count=3),
    adopted=Adopted(
        run=run_id(9),
        step="pay",
        place=2,
        fence=3,
        digest="ef" * 32,
        skipped=True,
        owned=True,
        executors=("ann",),
        remains="attempted",
    ),
    grown=Grown(count=9, failed=2, deadline=10, category=Category.TRANSIENT, error="no room", stops=True),
    activation=5,
    child=run_id(5),
    undoes=run_id(6),
    call=Called(
        kind="step", name="pay", digest="ab" * 32, arguments="[1]", step='{"name":"pay"}', queue=1, undo_queue=2
    ),
)
FULL_STEP = running(
    1, 2, due_at=99, fence=8, priority=5, attempts=2, losses=1, unmet=3, category=Category.TRANSIENT, error="e"
)
FULL_DETAILS = details(
    1,
    business_key="order/1",
    rerun_of=run_id(9),
    labels=b'{"team":"x"}',
    asked_before=b'["a"]',
    policy_revision=3,
    created_at=17,
    input=b'["\xc3\xa9"]',
)
FULL_ATTEMPT = Attempt(
    tenant=TENANT,
    run_id=run_id(1),
    no=2,
    fence=7,
    number=2,
    state=AttemptState.TIMED_OUT,
    worker=WORKER,
    started_at=5,
    ended_at=6,
    category=Category.TIMEOUT,
    error="too slow",
    output=b'{"half":true}',
    cost=b'{"tokens":12}',
)
FULL_OUTBOX = OutboxEntry(
    tenant=TENANT, run_id=run_id(1), seq=2, number=1, name="shipped", payload=b'{"to":"x"}', created_at=3
)
RAREST = {Run: {"ended_at"}, Step: {"ready_at", "settled", "note"}}
"""Fields that cannot be set beside the others; they have tests of their own."""


def test_the_full_rows_leave_no_field_at_its_default() -> None:
    for value in (FULL_RUN, FULL_STEP, FULL_DETAILS, FULL_ATTEMPT, FULL_NOTE):
        unset = {name for name, held in asdict(value).items() if held in (None, False, b"")}
        assert unset <= RAREST.get(type(value), set()), value


async def test_a_new_run_is_read_back_whole(store: Store) -> None:
    messages = (a_message(1, "m-1", 1), a_message(1, "m-2", 2, consumed_by=2))
    outbox = (replace(FULL_OUTBOX, seq=1), replace(FULL_OUTBOX, seq=1, number=2))
    waiting = a_step(1, 0, state=StepState.AWAITING_EVENT, due_at=50, note=FULL_NOTE)
    steps = (waiting, ready(1, 1, at=44), FULL_STEP)
    entry = an_entry(run_id(1), 1)
    idempotency = IdempotencyKey(tenant=TENANT, operation="start", key="k", fingerprint="f", run_id=run_id(1))
    new = new_run(
        1, steps, run=FULL_RUN, details=FULL_DETAILS, messages=messages, outbox=outbox, idempotency=idempotency
    )
    await save(store, new)

    record = await store.read_run(*key(1))
    assert record is not None
    assert (record.run, record.details) == (FULL_RUN, FULL_DETAILS)
    assert await store.read_steps(*key(1)) == list(steps)
    assert await store.read_messages(*key(1)) == list(messages)
    assert await store.read_outbox(*key(1)) == list(outbox)
    assert await store.read_journal(*key(1)) == [entry]
    assert await store.read_details([key(1), key(2)]) == {key(1): FULL_DETAILS}
    assert await store.list_runs(RunFilter(tenant=TENANT)) == [record]


async def test_a_change_loads_what_was_written(store: Store) -> None:
    steps = (a_step(1, 0, state=StepState.AWAITING_EVENT, note=FULL_NOTE), ready(1, 1), FULL_STEP)
    kept = a_message(1, "m-1", 1)
    await save(store, new_run(1, steps, run=FULL_RUN, details=FULL_DETAILS, messages=(kept,)))

    loaded = await load(store, want(1, whole=True, inbox=True, input=True, waiting=True), want(2, whole=True))

    assert loaded.runs == {key(1): FULL_RUN}
    assert loaded.steps == {key(1): dict(enumerate(steps))}
    assert loaded.inbox == {key(1): (kept,)}
    assert loaded.inputs == {key(1): FULL_DETAILS.input}
    assert key(1) in loaded.whole
    assert key(1) in loaded.waiting
    assert key(2) not in loaded.whole


async def test_only_what_is_wanted_is_loaded(store: Store) -> None:
    approval = a_step(1, 1, state=StepState.AWAITING_APPROVAL)
    await save(store, new_run(1, (ready(1), approval, a_step(1, 2))), new_run(2, (ready(2),)))

    by_number = await load(store, want(1, steps=(0, 2)))
    assert set(by_number.steps[key(1)]) == {0, 2}
    assert not by_number.whole
    assert not by_number.waiting
    assert by_number.inbox == {}
    assert key(2) not in by_number.runs

    waiting = await load(store, want(1, waiting=True))
    assert waiting.steps[key(1)] == {1: approval}
    assert waiting.waiting == {key(1)}


async def test_a_run_without_waiting_steps_or_messages_says_so(store: Store) -> None:
    await save(store, new_run(1, (ready(1),)))
    loaded = await load(store, want(1, waiting=True, inbox=True))
    assert loaded.waiting == {key(1)}
    assert loaded.inbox == {key(1): ()}
    assert loaded.steps == {key(1): {}}


async def test_changed_rows_replace_the_old_ones_and_added_ones_join_them(store: Store) -> None:
    await save(store, new_run(1, (ready(1), a_step(1, 1), a_step(1, 2)), run=a_run(1, moving=1)))
    run, entry = moved(a_run(1), moving=2, leased=1, inbox=1, category=Category.AUTH, error="x")
    first = running(1, 0, due_at=99, fence=1, attempts=1)
    second = settled(a_step(1, 1), StepState.SKIPPED, error="no need")
    hook = ready(1, 3, at=8)
    await store.change(
        [want(1)],
        writes(
            Write(
                runs=[run],
                steps=[first, second],
                new_steps=[hook],
                attempts=[replace(FULL_ATTEMPT, no=0, fence=1)],
                entries=[entry],
                rows=rows_of([a_message(1, "m", 1), FULL_OUTBOX]),
            )
        ),
    )
    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == run.run
    assert await store.read_steps(*key(1)) == [first, second, a_step(1, 2), hook]
    assert await store.read_attempts(*key(1)) == [replace(FULL_ATTEMPT, no=0, fence=1)]
    assert await store.read_journal(*key(1)) == [an_entry(run_id(1), 1), entry]
    assert await store.read_journal(*key(1), after=1) == [entry]
    assert await store.read_journal(*key(1), limit=1) == [an_entry(run_id(1), 1)]
    assert await store.read_messages(*key(1)) == [a_message(1, "m", 1)]
    assert await store.read_outbox(*key(1)) == [FULL_OUTBOX]


async def test_the_end_of_a_run_is_read_back(store: Store) -> None:
    await save(store, new_run(1, (ready(1),)))
    run, entry = finished(a_run(1), RunState.ROLLED_BACK)
    await store.change([want(1)], writes(Write(runs=[run], entries=[entry], steps=[settled(ready(1))])))
    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == run.run
    assert await store.count_runs(TENANT) == {RunState.ROLLED_BACK: 1}


async def test_attempts_are_ordered_by_step_and_fence(store: Store) -> None:
    order = [(0, 1), (0, 2), (0, 10), (1, 1)]
    attempts = [replace(FULL_ATTEMPT, no=no, fence=fence) for no, fence in order]
    await save(store, new_run(1, (a_step(1, 0), a_step(1, 1))))
    await store.change([want(1)], writes(Write(attempts=attempts[::-1])))
    assert await store.read_attempts(*key(1)) == attempts


async def test_an_output_comes_from_the_note_or_from_the_attempt_that_counts(store: Store) -> None:
    won = replace(FULL_ATTEMPT, state=AttemptState.SUCCEEDED, category=None, error=None, fence=2)
    steps = (
        a_step(1, 0, state=StepState.AWAITING_APPROVAL, note=Note(output='{"ok" :1}')),
        running(1, 1, due_at=9, fence=2, state=StepState.VALIDATING),
        settled(a_step(1, 2, fence=3)),
        settled(a_step(1, 3, fence=2), StepState.FAILED),
        running(1, 4, due_at=9, fence=3, state=StepState.VALIDATING, note=Note(checked=2)),
        settled(a_step(1, 5, fence=2), note=Note(output="2")),
    )
    await save(store, new_run(1, steps))
    attempts = [
        replace(won, no=1, output=b'"one"'),
        replace(won, no=2, output=b'"old"'),
        replace(FULL_ATTEMPT, no=3, fence=2, output=b'"failed"'),
        replace(won, no=4, output=b'"checked"'),
        replace(won, no=5, output=b'"hidden"'),
    ]
    await store.change([want(1)], writes(Write(attempts=attempts)))

    expected = {0: b'{"ok" :1}', 1: b'"one"', 2: None, 3: None, 4: b'"checked"', 5: b"2"}
    loaded = await load(store, want(1, outputs=(0, 1, 2, 3, 4, 5)))
    assert loaded.outputs == {key(1): expected}
    keys = [(*key(1), no) for no in (*expected, 77)]
    assert await store.read_outputs(keys) == {(*key(1), no): expected.get(no) for no in (*expected, 77)}
    results = {key(1): (*expected, 77)}
    assert (await store.read_states([key(1)], results))[key(1)].outputs == {}
    change, entry = finished(a_run(1))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry])))
    assert (await store.read_states([key(1)], results))[key(1)].outputs == expected
    assert (await store.read_states([key(1)]))[key(1)].outputs == {}


async def test_runs_are_listed_newest_first_in_pages_and_by_filter(store: Store) -> None:
    await save(
        store,
        new_run(1, run=a_run(1, RunState.BLOCKED)),
        new_run(2, run=a_run(2, business_key="b")),
        new_run(3, details=details(3, workflow="other")),
        new_run(4),
    )

    async def listed(**given: object) -> list[str]:
        return [record.run.id for record in await store.list_runs(RunFilter(tenant=TENANT, **given))]  # type: ignore[arg-type]

    assert await listed() == [run_id(4), run_id(3), run_id(2), run_id(1)]
    assert await listed(limit=2) == [run_id(4), run_id(3)]
    assert await listed(limit=2, before=run_id(3)) == [run_id(2), run_id(1)]
    assert await listed(states=(RunState.BLOCKED, RunState.FAILED)) == [run_id(1)]
    assert await listed(workflow="other") == [run_id(3)]
    assert await listed(business_key="b") == [run_id(2)]
    assert await listed(correlation_id="order-4") == [run_id(4)]
    assert await listed(workflow="onboarding", states=(RunState.RUNNING,)) == [run_id(4), run_id(2)]
    assert await store.count_runs(TENANT) == {RunState.BLOCKED: 1, RunState.RUNNING: 3}


async def test_another_tenant_sees_nothing(store: Store) -> None:
    await save(store, new_run(1, (ready(1),), messages=(a_message(1, "m", 1),)))
    mine = run_id(1)
    assert await store.read_run("other", mine) is None
    assert await store.read_steps("other", mine) == []
    assert await store.read_attempts("other", mine) == []
    assert await store.read_messages("other", mine) == []
    assert await store.read_journal("other", mine) == []
    assert await store.read_outbox("other", mine) == []
    assert await store.list_runs(RunFilter(tenant="other")) == []
    assert await store.count_runs("other") == {}
    assert (await load(store, Want(tenant="other", run_id=mine, whole=True, steps=(0,)))).runs == {}


async def test_an_id_that_no_run_ever_has_is_simply_not_there(store: Store) -> None:
    for odd in ("", "nonsense", "x" * 500, "'; drop table runs; --"):
        assert await store.read_run(TENANT, odd) is None
        assert await store.read_steps(TENANT, odd) == []
        assert await store.read_journal(TENANT, odd) == []
        assert (await load(store, Want(tenant=TENANT, run_id=odd, steps=(0,), inbox=True))).runs == {}


SPECS = (
    QueueSpec(kind="python", name="mail.send", capabilities=("eu", "gpu"), group="slow"),
    None,
    QueueSpec(kind="http"),
    QueueSpec(kind="python", name="mail.send", capabilities=("eu", "gpu"), group="slow"),
)


async def test_a_queue_is_added_once(store: Store, other: Store) -> None:
    for one in (store, other):
        await one.add_queue(TENANT, QueueSpec(kind="sealed"))
    assert [spec for _, spec in await store.list_queues(TENANT)] == [QueueSpec(kind="sealed")]
    assert await store.list_queues("other") == []


async def test_a_tenant_is_told_whether_another_one_has_published_anything(store: Store, other: Store) -> None:
    assert not await store.has_other_tenants(TENANT)
    await store.publish(TENANT, "w", 1, "native", "d1", b"{}", SPECS, "user:ann")
    assert not await store.has_other_tenants(TENANT)
    for one in ("", "~", f"{TENANT}x"):
        assert await store.has_other_tenants(one)
    await other.publish("another", "w", 1, "native", "d1", b"{}", (), "user:ann")
    assert await store.has_other_tenants(TENANT)


async def test_a_definition_is_published_once_with_its_queues(store: Store, other: Store) -> None:
    first = await store.publish(TENANT, "w", 1, "native", "d1", b'{"a":1}', SPECS, "user:ann")
    again = await other.publish(TENANT, "w", 1, "ioa", "d2", b'{"b":1}', (), "user:bob")
    assert again == first
    assert (first.name, first.version, first.dialect, first.digest) == ("w", 1, "native", "d1")
    assert (first.document, first.published_by) == (b'{"a":1}', "user:ann")
    assert first.published_at > 0

    queues = dict(await store.list_queues(TENANT))
    assert [queues.get(number) for number in first.queues] == list(SPECS)
    assert first.queues[0] == first.queues[3]
    assert first.queues[1] == 0

    second = await other.publish(TENANT, "w", 2, "native", "d3", b"{}", SPECS[2:3], "user:ann")
    assert second.queues == first.queues[2:3]
    assert await store.read_definition(TENANT, "w", None) == second
    assert await store.read_definition(TENANT, "w", 1) == first
    assert await store.read_definition(TENANT, "w", 3) is None
    assert await store.read_definition("other", "w", 1) is None
    assert await store.list_definitions(TENANT) == [second, first]
    assert await store.read_definitions([first.id, 999]) == {first.id: first}
    assert await store.list_queues("other") == []


async def test_a_change_can_ask_for_definitions(store: Store) -> None:
    published = await store.publish(TENANT, "w", 1, "native", "d", b"{}", SPECS, "user:ann")
    asked: list[dict[int, object]] = []

    def decide(loaded: object) -> More | Write:
        asked.append(dict(loaded.definitions))  # type: ignore[attr-defined]
        return More(definitions=(published.id, 999)) if len(asked) == 1 else Write()

    await store.change((), decide)
    assert asked == [{}, {published.id: published}]


async def test_a_step_keeps_a_note_of_any_size_as_it_was(store: Store) -> None:
    big = '"' + "x" * 300_000 + '"'
    step = a_step(1, 0, state=StepState.AWAITING_EVENT, note=Note(event="é", output=big))
    await save(store, new_run(1, (step,)))
    assert (await load(store, want(1, steps=(0,)))).steps[key(1)][0] == step
    assert await store.read_steps(*key(1)) == [step]


async def test_a_run_change_never_touches_its_details(store: Store) -> None:
    given: Details = FULL_DETAILS
    await save(store, new_run(1, run=FULL_RUN, details=given))
    change = RunChange(was=1, run=replace(FULL_RUN, seq=2, head=b"\1" * 32))
    await store.change([want(1)], writes(Write(runs=[change])))
    assert (await store.read_details([key(1)]))[key(1)] == given
