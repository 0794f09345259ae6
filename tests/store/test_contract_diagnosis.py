"""What diagnosis reads and writes: reports of workers, evidence of attempts, counts and backlogs, each bounded."""

from msgspec.structs import replace
from tests.store.values import SECOND, TENANT, a_run, a_step, a_worker, an_entry, new_run, run_id, save, settled

from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.machine.rows import Attempt, Called, Note
from stepkeep.kernel.machine.states import AttemptState, Category, RunState, StepState, StopCause, WorkerState
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_ID, Backlog, Evidence, RecentAttempt, RecentFailure, RecentRun


async def test_a_worker_replaces_its_report_and_only_its_own(store: Store) -> None:
    first = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    second = await store.add_worker(a_worker("w-2"), an_entry("w-2", 1))
    await store.report_worker(TENANT, first.no, b'{"held": 1}')
    await store.report_worker(TENANT, second.no, b'{"held": 2}')
    await store.report_worker(TENANT, first.no, b'{"held": 3}')
    found = await store.list_worker_reports(TENANT)
    assert [(one.worker, one.body) for one in found] == [(first.no, b'{"held": 3}'), (second.no, b'{"held": 2}')]
    now = await store.now()
    assert all(0 < one.reported_at <= now for one in found)
    assert await store.list_worker_reports("other") == []


async def test_reports_are_read_by_the_numbers_of_their_workers(store: Store) -> None:
    made = [await store.add_worker(a_worker(f"w-{no}"), an_entry(f"w-{no}", 1)) for no in range(3)]
    for worker in made[:2]:
        await store.report_worker(TENANT, worker.no, worker.id.encode().join((b'"', b'"')))
    found = await store.read_worker_reports(TENANT, [made[1].no, made[2].no])
    assert [(one.worker, one.body) for one in found] == [(made[1].no, b'"w-1"')]
    assert await store.read_worker_reports("other", [made[1].no]) == []


async def test_reports_of_living_workers_are_listed_however_old_their_numbers_are(store: Store) -> None:
    states = (WorkerState.IDLE, WorkerState.SHUTDOWN, WorkerState.SHUTDOWN, WorkerState.SHUTDOWN)
    made = [
        await store.add_worker(a_worker(f"w-{no}", state), an_entry(f"w-{no}", 1)) for no, state in enumerate(states)
    ]
    for worker in made:
        await store.report_worker(TENANT, worker.no, b"{}")
    listed = [one.worker for one in await store.list_worker_reports(TENANT, newest=1)]
    assert listed == [made[0].no, made[3].no]


async def test_the_first_evidence_of_an_attempt_stays_and_goes_with_its_run(store: Store) -> None:
    await save(store, new_run(1, (a_step(1, 0),)))
    given = [Evidence(TENANT, run_id(1), 0, fence, b'{"traceback": "x"}') for fence in (2, 1)]
    await store.add_evidence(given)
    await store.add_evidence([Evidence(TENANT, run_id(1), 0, 1, b"{}")])
    assert await store.read_evidence(TENANT, run_id(1)) == [given[1], given[0]]
    assert await store.read_evidence("other", run_id(1)) == []
    assert await store.read_evidence(TENANT, "no run") == []


async def test_runs_are_counted_by_state_and_by_category_up_to_a_limit(store: Store) -> None:
    ended = {"ended_at": 9, "open": 0, "moving": 0}
    runs = {
        1: a_run(1, state=RunState.QUEUED, due_at=5 * SECOND),
        2: a_run(2, state=RunState.QUEUED),
        3: replace(a_run(3, state=RunState.SUCCEEDED), **ended, due_at=None),
        4: replace(
            a_run(4, state=RunState.FAILED, cause=StopCause.FAILURE, category=Category.AUTH), **ended, due_at=None
        ),
    }
    for number, run in runs.items():
        steps = (a_step(number, 0, state=StepState.READY, ready_at=number, queue=7),) if number < 3 else ()
        await save(store, new_run(number, steps, run=run))
    counted = await store.tally(TENANT, after=FIRST_ID, late_by=6 * SECOND, limit=100)
    assert counted.live == {RunState.QUEUED: 2}
    assert counted.recent == {RunState.QUEUED: 2, RunState.SUCCEEDED: 1, RunState.FAILED: 1}
    assert counted.troubled == {(RunState.FAILED, Category.AUTH): 1}
    assert (counted.late, counted.late_since) == (1, 5 * SECOND)
    few = await store.tally(TENANT, after=run_id(2), late_by=0, limit=1)
    assert (few.live, few.recent, few.late) == ({RunState.QUEUED: 1}, {RunState.FAILED: 1}, 0)
    assert [await store.count_unfinished(TENANT, most) for most in (100, 1)] == [2, 1]
    assert [await store.count_newest(TENANT, FIRST_ID, most) for most in (100, 3)] == [4, 3]
    assert await store.count_newest(TENANT, run_id(3), 100) == 2
    assert await store.count_unfinished("other", 9) == await store.count_newest("other", FIRST_ID, 9) == 0


async def test_a_sample_has_the_runs_whose_ids_end_in_certain_bytes(store: Store) -> None:
    for number in range(20):
        state = RunState.QUEUED if number % 2 else RunState.SUCCEEDED
        ended = {} if number % 2 else {"ended_at": 9, "open": 0, "moving": 0}
        await save(store, new_run(number, run=replace(a_run(number, state=state), **ended, due_at=None)))

    async def recent(share: int, limit: int = 100, after: str = FIRST_ID) -> list[str]:
        return [one.id for one in await store.sample_recent(TENANT, after=after, share=share, limit=limit)]

    async def live(share: int, limit: int = 100) -> list[str]:
        return [one.id for one in await store.sample_live(TENANT, share=share, limit=limit)]

    # An id of this suite ends in decimal digits: that of run 12 ends in the byte 0x12.
    below = [run_id(number) for number in (12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)]
    assert await recent(0x13) == below
    assert await recent(256) == [run_id(number) for number in reversed(range(20))]
    assert await recent(0x13, limit=9) == below[:2], "among the newest"
    assert await recent(0x13, after=run_id(10)) == below[:2]
    assert await live(0x13) == [run_id(number) for number in (11, 9, 7, 5, 3, 1)]
    assert await live(0x13, limit=5) == [run_id(11)]
    assert await recent(0) == await live(0) == []


async def test_a_backlog_is_counted_per_queue_and_its_oldest_step_is_found_at_any_priority(store: Store) -> None:
    places = [(7, 0, 30), (7, 5, 40), (7, -5, 10), (8, 0, 20)]
    steps = [
        a_step(1, no, state=StepState.READY, queue=queue, priority=priority, ready_at=ready_at)
        for no, (queue, priority, ready_at) in enumerate(places)
    ]
    await save(store, new_run(1, steps))
    assert sorted(await store.read_backlog([7, 8, 9], 100), key=lambda one: one.queue) == [
        Backlog(7, 3, 10),
        Backlog(8, 1, 20),
    ]
    assert [one.depth for one in await store.read_backlog([7], 2)] == [2]
    assert await store.read_backlog([], 10) == []


async def test_steps_of_paused_runs_are_no_backlog(store: Store) -> None:
    times = {7: (30, HELD_BACK), 8: (HELD_BACK,)}
    steps = [
        a_step(1, no, state=StepState.READY, queue=queue, ready_at=ready_at)
        for no, (queue, ready_at) in enumerate((queue, one) for queue, found in times.items() for one in found)
    ]
    await save(store, new_run(1, steps))
    assert await store.read_backlog([7, 8], 100) == [Backlog(7, 1, 30)]


async def test_a_paused_run_is_kept_and_is_not_stuck(store: Store) -> None:
    """Nothing of it moves by itself, and a person resumes it."""
    await save(store, new_run(1, run=a_run(1, state=RunState.PAUSED, open=1, moving=0)))
    found = await store.read_run(TENANT, run_id(1))
    assert found is not None
    assert found.run.state is RunState.PAUSED
    assert await store.stuck_runs() == []


async def test_the_newest_runs_and_their_attempts_are_read_up_to_a_limit(store: Store) -> None:
    ended = {"ended_at": 9, "open": 0, "moving": 0, "due_at": None}
    runs = {
        1: replace(a_run(1, state=RunState.SUCCEEDED, started_at=4), **ended),
        2: replace(
            a_run(2, state=RunState.FAILED, cause=StopCause.FAILURE, category=Category.AUTH, started_at=5), **ended
        ),
        3: a_run(3, state=RunState.RUNNING),
    }
    for number, run in runs.items():
        await save(store, new_run(number, run=run))
    attempts = [
        Attempt(TENANT, run_id(number), no, 1, 1, AttemptState.SUCCEEDED, 1, 10, 10 + number + no)
        for number in runs
        for no in (0, 1)
    ]
    await store.change((), lambda loaded: Write(attempts=attempts))
    found = await store.read_recent_runs(TENANT, after=FIRST_ID, limit=10)
    assert found == [
        RecentRun(run_id(3), 1, RunState.RUNNING, None, runs[3].started_at, None),
        RecentRun(run_id(2), 1, RunState.FAILED, Category.AUTH, 5, 9),
        RecentRun(run_id(1), 1, RunState.SUCCEEDED, None, 4, 9),
    ]
    assert await store.read_recent_runs(TENANT, after=run_id(2), limit=10) == found[:1]
    assert await store.read_recent_runs(TENANT, after=FIRST_ID, limit=2) == found[:2]
    assert await store.read_recent_runs("other", after=FIRST_ID, limit=2) == []
    ids = [run_id(number) for number in runs]
    taken = await store.read_recent_attempts(TENANT, ids, limit=10)
    assert taken == [
        RecentAttempt(run_id(number), no, AttemptState.SUCCEEDED, number + no) for number in (3, 2, 1) for no in (0, 1)
    ]
    assert await store.read_recent_attempts(TENANT, ids[:1], limit=10) == taken[4:]
    assert await store.read_recent_attempts(TENANT, ids, limit=3) == taken[:3]
    assert await store.read_recent_attempts(TENANT, [], limit=3) == []
    assert await store.read_recent_attempts("other", ids, limit=3) == []


async def test_failures_are_read_with_the_step_that_failed_first(store: Store) -> None:
    ended = {"ended_at": 9, "open": 0, "moving": 0, "due_at": None}
    failure = {"state": RunState.FAILED, "cause": StopCause.FAILURE, "category": Category.AUTH, "error": "stopped"}
    runs = {
        1: replace(a_run(1, **failure), **ended),
        2: replace(a_run(2, state=RunState.FAILED, cause=StopCause.TIMEOUT, error="too late"), **ended),
        3: replace(a_run(3, state=RunState.CANCELLED, cause=StopCause.CANCEL, error="not wanted"), **ended),
        4: a_run(4, state=RunState.RUNNING),
    }
    failed = [
        replace(settled(a_step(1, no), StepState.FAILED), settled=place, category=Category.EXTERNAL, error=text)
        for no, place, text in ((1, 7 << 20, "second"), (2, 6 << 20, "first"))
    ]
    failed[1] = replace(failed[1], note=Note(call=Called(kind="step", name="think", digest="", arguments="", step="")))
    for number, run in runs.items():
        await save(store, new_run(number, failed if number == 1 else (), run=run))
    found = await store.read_failures(TENANT, after=FIRST_ID, limit=10)
    assert found == [
        RecentFailure(run_id(2), 1, RunState.FAILED, None, None, None, "too late", 9),
        RecentFailure(run_id(1), 1, RunState.FAILED, 2, "think", Category.EXTERNAL, "first", 9),
    ]
    assert await store.read_failures(TENANT, after=run_id(1), limit=10) == found[:1]
    assert await store.read_failures(TENANT, after=FIRST_ID, limit=1) == found[:1]
    assert await store.read_failures("other", after=FIRST_ID, limit=10) == []
