-- Find claimable steps in claim order, with their runs, as they stand at one moment. Nothing is locked.
--
-- `shares` are the claimable steps in the order between runs. Each run gets as many of its steps as it has shares, and
-- these are the claimable ones with the lowest numbers.
with shares as materialized (
    select share.*, row_number() over (order by share.priority desc, share.ready_at, share.run_id, share.no) as place
    from unnest($1::text::int[]) as asked (queue)
    cross join lateral (
        select tenant, run_id, no, priority, ready_at
        from steps
        where steps.queue = asked.queue and steps.ready_at < 100000000000000000 and steps.ready_at >= $3::bigint
            and steps.ready_at <= (select stepkeep_now() + $4::bigint)
            and (steps.tenant, steps.run_id) not in (select tenant, run_id from quarantine where released_at is null)
        order by steps.priority desc, steps.ready_at, steps.run_id, steps.no
        limit $2::int
    ) as share
    order by place
    limit $2::int
)
select (select stepkeep_now() + $4::bigint) as now, shared.tenant, shared.run_id::text, step.*, run.*
from (
    select tenant, run_id, array_agg(place order by place) as places, count(*) as size
    from shares
    group by tenant, run_id
) as shared
cross join lateral (
    select no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
        category, error, note
    from steps
    where steps.run_id = shared.run_id and steps.tenant = shared.tenant
        and steps.ready_at <= (select stepkeep_now() + $4::bigint) and steps.queue = any ($1::text::int[])
    order by steps.no
    limit shared.size
) as step
cross join lateral (
    select definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
        cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at
    from runs
    where runs.tenant = shared.tenant and runs.id = shared.run_id
    offset 0
) as run
order by shared.places[row_number() over (partition by shared.run_id, shared.tenant order by step.no)]
