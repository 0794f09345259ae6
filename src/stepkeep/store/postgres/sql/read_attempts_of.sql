-- Read all attempts of runs, in the given order.
select child.*
from unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)
cross join lateral (
    select tenant, run_id::text, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost
    from attempts
    where attempts.tenant = $1 and attempts.run_id = wanted.run_id
    offset 0
) as child
order by wanted.place, child.no, child.fence
