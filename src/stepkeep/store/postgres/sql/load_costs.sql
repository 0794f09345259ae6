-- Read what the ended attempts of runs cost.
select wanted.place, attempt.cost
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select no, fence, cost
    from attempts
    where attempts.tenant = wanted.tenant and attempts.run_id = wanted.run_id
    offset 0
) as attempt
order by wanted.place, attempt.no, attempt.fence
