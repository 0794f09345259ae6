"""Planted bugs in the SQL of children, resources, limits, slots and jobs. `mutants` adds them to its list."""

from __future__ import annotations

from stepkeep_lab.storecheck.planting import SqlMutant

POSTGRES, SQLITE = "postgres", "sqlite"


def _on(store: str, file: str, name: str, what: str, old: str, new: str) -> SqlMutant:
    return SqlMutant(f"{store}-{name}", store, file, what, old, new)


def _on_both(file: str, name: str, what: str, old: str, new: str) -> tuple[SqlMutant, ...]:
    """The same bug in both stores; `?` stands for the sign before the number of a parameter."""
    return tuple(
        _on(store, file, name, what, old.replace("?", sign), new.replace("?", sign))
        for store, sign in ((POSTGRES, "$"), (SQLITE, "?"))
    )


CHILDREN = (
    *_on_both(
        "begin_child",
        "withdrawn-child-starts",
        "a child starts although its parent has called it back",
        " and state = 'requested'",
        "",
    ),
    *_on_both(
        "end_child",
        "detached-end-told",
        "the end of a detached child is told to a parent that does not wait",
        "todo = case mode when 'awaited' then 'tell' end",
        "todo = 'tell'",
    ),
    *_on_both(
        "end_child",
        "end-of-child-unseen",
        "the end of a child is not noted",
        " and state = 'started'",
        " and state = 'requested'",
    ),
    *_on_both(
        "recall_child",
        "recalled-child-requested",
        "a child that was called back before it started is still requested",
        "state = case state when 'requested' then 'withdrawn' else state end",
        "state = state",
    ),
    *_on_both(
        "recall_child",
        "ended-child-recalled",
        "a child that has ended is called back, and its end is never told",
        " and state in ('requested', 'started')",
        "",
    ),
    *_on_both(
        "update_child",
        "done-twice",
        "what was done about a child is written although another worker did more meanwhile",
        " and todo = ?13",
        " and (todo = ?13 or true)",
    ),
    _on(
        POSTGRES,
        "find_due_children",
        "put-off-child-due",
        "what was put off about a child is tried again at once",
        " and todo_at <= (select stepkeep_now() + $1::bigint)",
        " and (true or $1::bigint is null)",
    ),
    _on(
        SQLITE,
        "find_due_children",
        "put-off-child-due",
        "what was put off about a child is tried again at once",
        " and todo_at <= ?1",
        " and (true or ?1)",
    ),
    _on(
        POSTGRES,
        "find_due_children",
        "quarantined-parent-due",
        "the children of a quarantined run are looked after",
        "where released_at is null)",
        "where false)",
    ),
    _on(
        SQLITE,
        "find_due_children",
        "quarantined-parent-due",
        "the children of a quarantined run are looked after",
        "q.released_at is null",
        "false",
    ),
    *_on_both(
        "find_due_children", "last-due-first", "the child due last comes first", "order by todo_at", "order by -todo_at"
    ),
    *_on_both(
        "read_children",
        "children-of-all-tenants",
        "the children of another tenant's run are read",
        "where tenant = ?1 and ",
        "where ?1 <> '' and ",
    ),
    _on(
        POSTGRES,
        "delete_children",
        "links-of-all-tenants-deleted",
        "the deletion of a run deletes the links of another tenant",
        "children.tenant = $1 and ",
        "$1 <> '' and ",
    ),
    _on(
        SQLITE,
        "delete_children",
        "links-of-all-tenants-deleted",
        "the deletion of a run deletes the links of another tenant",
        "tenant = ?1 and ",
        "?1 <> '' and ",
    ),
)

RESOURCES = (
    _on(
        POSTGRES,
        "lock_quota",
        "resources-counted-together",
        "two claims count what is held at the same time, and both take the rest",
        "do update set scope = excluded.scope",
        "do nothing",
    ),
    *_on_both(
        "read_resource_holds",
        "freed-resource-counts",
        "a resource counts as held after the attempt of its step has ended",
        " and s.worker is not null",
        "",
    ),
    *_on_both(
        "read_resource_holds",
        "resources-of-all-tenants",
        "what steps of another tenant hold counts too",
        "where h.tenant = ?1 and ",
        "where ?1 <> '' and ",
    ),
    *_on_both(
        "forget_resource_holds",
        "freed-resource-kept",
        "the row of a resource that was given back stays, and nothing gets the resource again",
        " and s.worker is not null",
        "",
    ),
    *_on_both(
        "forget_resource_holds",
        "held-resource-forgotten",
        "the rows of resources that are held are deleted, and two steps hold one",
        "s.worker is not null",
        "s.worker is null",
    ),
    *_on_both(
        "find_resource_waiters",
        "paused-step-waits",
        "a step of a paused run is claimed if it needs resources",
        " and steps.ready_at < 200000000000000000",
        "",
    ),
    *_on_both(
        "find_resource_waiters",
        "waiters-last-first",
        "of the steps that need resources the least urgent comes first",
        "order by steps.priority desc",
        "order by steps.priority",
    ),
    _on(
        POSTGRES,
        "find_resource_waiters",
        "waiters-of-any-queue",
        "steps that need resources are found in every queue",
        "where steps.queue in (select asked.value::int",
        "where steps.queue >= all (select asked.value::int * 0",
    ),
    _on(
        SQLITE,
        "find_resource_waiters",
        "waiters-of-any-queue",
        "steps that need resources are found in every queue",
        "where steps.queue in (select value from json_each(?1))",
        "where ?1 is not null",
    ),
    _on(
        POSTGRES,
        "find_resource_waiters",
        "quarantined-step-waits",
        "a step of a quarantined run is claimed if it needs resources",
        "where q.released_at is null",
        "where false",
    ),
    _on(
        SQLITE,
        "find_resource_waiters",
        "quarantined-step-waits",
        "a step of a quarantined run is claimed if it needs resources",
        "q.released_at is null",
        "false",
    ),
    *_on_both(
        "find_resource_waiters_of",
        "quarantined-step-waits-alone",
        "a program that works on a quarantined run alone claims its steps that need resources",
        "q.released_at is null",
        "false",
    ),
    _on(
        POSTGRES,
        "find_resource_waiters_of",
        "waiters-of-other-runs",
        "a program that works on one run claims steps of others that need resources",
        " and steps.run_id = $3::uuid",
        " and $3::uuid is not null",
    ),
    _on(
        SQLITE,
        "find_resource_waiters_of",
        "waiters-of-other-runs",
        "a program that works on one run claims steps of others that need resources",
        " and steps.run_id = ?3",
        " and ?3 <> ''",
    ),
    *_on_both(
        "has_resource_waiters",
        "waiters-overlooked",
        "processes do not notice that steps wait for resources",
        "where ready_at >= 100000000000000000 and",
        "where ready_at >= 200000000000000000 and",
    ),
    _on(
        POSTGRES,
        "delete_resource_holds",
        "resources-of-all-tenants-deleted",
        "the deletion of a run frees what another tenant holds",
        "resource_holds.tenant = $1 and ",
        "$1 <> '' and ",
    ),
    _on(
        SQLITE,
        "delete_resource_holds",
        "resources-of-all-tenants-deleted",
        "the deletion of a run frees what another tenant holds",
        "tenant = ?1 and ",
        "?1 <> '' and ",
    ),
)

LIMITS = (
    _on(
        SQLITE,
        "end_limit_holds",
        "places-of-all-tenants-freed",
        "the end of a claim frees the places of another tenant's step with the same id",
        "where (tenant, run_id, no, fence) in (\n    select value->>0,",
        "where (run_id, no, fence) in (\n    select",
    ),
    *_on_both(
        "save_freed_limit_keys",
        "place-counted-on",
        "the end of a claim does not count its place as free",
        "held = limit_keys.held - excluded.held",
        "held = limit_keys.held",
    ),
    *_on_both(
        "save_limit_keys",
        "freed-grants-told-again",
        "grants that ended are told by every later grant of their key",
        ", freed = '[]'",
        "",
    ),
    *_on_both(
        "find_due_limit_lines",
        "sleeping-line-due",
        "lines that wait for the end of a claim are looked at",
        "limit_lines.due_at <= ",
        "coalesce(limit_lines.due_at, 0) <= ",
    ),
    *_on_both(
        "find_parked_steps",
        "quarantined-step-in-line",
        "a parked step of a quarantined run is offered to claims",
        "q.released_at is null",
        "false",
    ),
    _on(
        SQLITE,
        "drop_limit_lines",
        "line-dropped-with-steps",
        "a line goes while steps wait in it, which nothing looks for any more",
        "and w.queue = limit_lines.queue",
        "and w.queue <> limit_lines.queue",
    ),
    *_on_both(
        "park_steps",
        "parked-step-proposed",
        "a step that is parked is looked for like one that is set aside",
        "ready_at + 100000000000000000",
        "ready_at + 0",
    ),
    *_on_both(
        "wake_limit_lines",
        "freed-line-asleep",
        "a line under a key that has a place again is looked at much later",
        "set due_at = ?2",
        "set due_at = 100000000000000000 + ?2",
    ),
    *_on_both(
        "wake_limit",
        "changed-rule-asleep",
        "the lines of a limit whose rule has changed stay asleep",
        "where tenant = ?1 and name = ?2",
        "where tenant = ?1 and name = ?2 and due_at is not null",
    ),
)

SLOTS = (
    *_on_both(
        "count_held_slots",
        "ended-run-holds-slot",
        "a run that has ended counts as one that runs",
        " and runs.ended_at is null",
        "",
    ),
    *_on_both(
        "count_held_slots",
        "waiting-run-holds-slot",
        "a run that waits for a slot counts as one that holds it",
        " and slots.granted_at is not null",
        "",
    ),
    *_on_both(
        "find_slot_waiters",
        "slot-granted-again",
        "a run that holds a slot waits for one",
        " and slots.granted_at is null",
        "",
    ),
    *_on_both(
        "find_slot_waiters",
        "paused-run-granted",
        "a paused run is granted a slot",
        "runs.state not in ('idle', 'paused')",
        "runs.state not in ('idle')",
    ),
    *_on_both(
        "find_slot_waiters",
        "quarantined-run-granted",
        "a quarantined run is granted a slot",
        "q.released_at is null",
        "false",
    ),
    *_on_both(
        "count_slot_waiters",
        "all-runs-wait",
        "runs that are paused or have ended count as waiting for a slot",
        " and runs.state = 'queued'",
        "",
    ),
    *_on_both(
        "read_slot_use",
        "ended-run-shown",
        "runs that have ended are shown as holders of slots",
        " and runs.ended_at is null",
        "",
    ),
    _on(
        POSTGRES,
        "grant_slot",
        "slots-granted-to-all",
        "a slot is granted to every run that waits",
        "run_id = $2::uuid",
        "$2::uuid is not null",
    ),
    _on(
        SQLITE,
        "grant_slot",
        "slots-granted-to-all",
        "a slot is granted to every run that waits",
        "run_id = ?2",
        "?2 is not null",
    ),
)

JOBS = (
    *_on_both(
        "claim_job",
        "ended-job-claimed",
        "a job that was stopped is carried out",
        " and state = 'running'",
        "",
    ),
    _on(
        POSTGRES,
        "claim_job",
        "held-job-claimed",
        "two workers carry out one job at the same time",
        " and lease_until <= stepkeep_now() + $3::bigint",
        "",
    ),
    _on(
        SQLITE,
        "claim_job",
        "held-job-claimed",
        "two workers carry out one job at the same time",
        " and lease_until <= ?3",
        "",
    ),
    *_on_both(
        "report_job",
        "lost-job-reported",
        "a worker that has lost a job goes on with it",
        " and seq = ?3",
        " and seq >= ?3",
    ),
    *_on_both(
        "report_job",
        "ended-job-goes-on",
        "a job that is done runs again",
        " and state = 'running'",
        "",
    ),
    *_on_both("stop_job", "done-job-stopped", "a job that has ended is stopped", " and state = 'running'", ""),
    *_on_both(
        "update_job_run",
        "record-of-job-changed",
        "what became of a run of a job is overwritten",
        " and state = 'waiting'",
        "",
    ),
    *_on_both(
        "find_waiting_job_runs",
        "job-repeats-runs",
        "a job acts on runs again that it has acted on",
        " and state = 'waiting'",
        "",
    ),
    *_on_both(
        "count_job_runs",
        "jobs-of-all-tenants-counted",
        "runs of another tenant's job are counted",
        "where tenant = ?1 and ",
        "where ?1 <> '' and ",
    ),
    _on(
        POSTGRES,
        "find_due_jobs",
        "held-job-due",
        "a job that a worker holds is due",
        " and lease_until <= (select stepkeep_now() + $1::bigint)",
        " and (true or $1::bigint is null)",
    ),
    _on(
        SQLITE,
        "find_due_jobs",
        "held-job-due",
        "a job that a worker holds is due",
        " and lease_until <= ?1",
        " and (true or ?1)",
    ),
    *_on_both("find_due_jobs", "stopped-job-due", "a job that has ended is due", "state = 'running' and ", ""),
    *_on_both(
        "find_job_by_key",
        "job-of-another-key",
        "a request with a new idempotency key gets another job",
        " and idempotency_key = ?2",
        " and idempotency_key <> ?2",
    ),
    *_on_both(
        "find_job_by_key",
        "job-of-another-scope",
        "an idempotency key of another API key finds its job",
        " and scope in ('', ?3)",
        " and (true or scope = ?3)",
    ),
    *_on_both(
        "forget_job_runs",
        "young-runs-forgotten",
        "what became of the runs of young jobs is deleted",
        " and ended_at < ?2",
        " and ended_at <> ?2",
    ),
    *_on_both(
        "forget_jobs",
        "young-jobs-forgotten",
        "jobs are deleted before their time",
        " and j.ended_at < ?2",
        " and j.ended_at <> ?2",
    ),
)

COMPOSITION_MUTANTS: tuple[SqlMutant, ...] = (*CHILDREN, *RESOURCES, *LIMITS, *SLOTS, *JOBS)
