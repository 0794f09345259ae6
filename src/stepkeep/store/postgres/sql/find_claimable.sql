-- Find claimable steps in claim order, with their runs, as they stand at one moment. Nothing is locked.
with candidates as materialized (
    select candidate.*
    from unnest($1::text::int[]) as asked (queue)
    cross join lateral (
        select tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses,
            unmet, settled, category, error, note
        from steps
        where steps.queue = asked.queue and steps.ready_at >= $3::bigint
            and steps.ready_at <= (select stepkeep_now() + $4::bigint)
            and (steps.tenant, steps.run_id) not in (select tenant, run_id from quarantine where released_at is null)
        order by steps.priority desc, steps.ready_at, steps.run_id, steps.no
        limit $2::int
    ) as candidate
    order by candidate.priority desc, candidate.ready_at, candidate.run_id, candidate.no
    limit $2::int
)
select (select stepkeep_now() + $4::bigint) as now, candidates.tenant, candidates.run_id::text, candidates.no,
    candidates.queue, candidates.priority, candidates.state, candidates.ready_at, candidates.due_at, candidates.fence,
    candidates.worker, candidates.claimed_at, candidates.attempts, candidates.losses, candidates.unmet,
    candidates.settled, candidates.category, candidates.error, candidates.note, run.*
from candidates
cross join lateral (
    select definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
        cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at
    from runs
    where runs.tenant = candidates.tenant and runs.id = candidates.run_id
    offset 0
) as run
