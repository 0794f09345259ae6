-- Read the claimable steps with the lowest numbers of the wanted runs, as many of each as it has shares.
select wanted.place, step.*
from unnest($1::text::text[], $2::text::uuid[], $3::text::int[]) with ordinality
    as wanted (tenant, run_id, size, place)
cross join lateral (
    select no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
        category, error, note
    from steps
    where steps.run_id = wanted.run_id and steps.tenant = wanted.tenant
        and steps.ready_at <= $4::bigint and steps.queue = any ($5::text::int[])
    order by steps.no
    limit wanted.size
) as step
