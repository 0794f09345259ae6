-- Read by whose workers steps of runs were executed: the owners of their keys.
select distinct wanted.place, attempt.no, workers.owner
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select no, worker
    from attempts
    where attempts.tenant = wanted.tenant and attempts.run_id = wanted.run_id
    offset 0
) as attempt
join workers on workers.no = attempt.worker
where workers.owner is not null
