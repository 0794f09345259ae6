-- Find claimable steps in claim order and lock their runs, skipping runs that another transaction holds.
--
-- More candidates than asked for are read, so that workers that claim at the same time do not all come away with
-- nothing. The locks need no order: nothing here ever waits. Which steps of a run are proposed is read after its lock is
-- held (`load_claimable`): here each row is one share of its run.
with candidates as materialized (
    select candidate.*
    from unnest($1::text::int[]) as asked (queue)
    cross join lateral (
        select tenant, run_id, no, priority, ready_at
        from steps
        where steps.queue = asked.queue and steps.ready_at < 100000000000000000 and steps.ready_at >= $4::bigint
            and steps.ready_at <= (select stepkeep_now() + $5::bigint)
            and (steps.tenant, steps.run_id) not in (select tenant, run_id from quarantine where released_at is null)
        order by steps.priority desc, steps.ready_at, steps.run_id, steps.no
        limit $3::int
    ) as candidate
    order by candidate.priority desc, candidate.ready_at, candidate.run_id, candidate.no
    limit $3::int
),
locked as materialized (
    select candidates.tenant, candidates.run_id::text, run.*
    from candidates
    cross join lateral (
        select definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
            cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at
        from runs
        where runs.tenant = candidates.tenant and runs.id = candidates.run_id
        for update skip locked
    ) as run
    limit $2::int
)
select clock.now, locked.*
from (select stepkeep_now() + $5::bigint as now from locked having count(*) >= 0) as clock
left join locked on true
