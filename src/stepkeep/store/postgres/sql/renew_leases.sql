-- Renew the leases that are still valid, each under its run's lock, and return the state of those runs.
with locked as materialized (
    select asked.run_id, asked.no, asked.fence, asked.lease, asked.tenant, run.state
    from unnest($1::text::text[], $2::text::uuid[], $3::text::int[], $4::text::int[], $5::text::bigint[])
        as asked (tenant, run_id, no, fence, lease)
    cross join lateral (
        select state
        from runs
        where runs.tenant = asked.tenant and runs.id = asked.run_id
            and (runs.tenant, runs.id) not in (select tenant, run_id from quarantine where released_at is null)
        for update
    ) as run
),
clock as materialized (
    select stepkeep_now() + $6::bigint as now from locked having count(*) >= 0
)
update steps
set due_at = greatest(steps.due_at, clock.now + locked.lease)
from clock cross join locked
where steps.tenant = locked.tenant and steps.run_id = locked.run_id and steps.no = locked.no
    and steps.fence = locked.fence and steps.state in ('running', 'validating') and steps.worker is not null
    and steps.due_at >= clock.now
returning steps.run_id::text, steps.no, steps.fence, locked.state
