-- Read steps by number; `offset 0` keeps the plan from probing by run alone.
select wanted.place, step.*
from unnest($1::text::text[], $2::text::uuid[], $3::text::int[]) with ordinality as wanted (tenant, run_id, no, place)
cross join lateral (
    select queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
        category, error, note
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id and steps.no = wanted.no
    offset 0
) as step
