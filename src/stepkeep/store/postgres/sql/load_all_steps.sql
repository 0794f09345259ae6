-- Read every step of the wanted runs.
select wanted.place, step.*
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
        category, error, note
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id
    offset 0
) as step
