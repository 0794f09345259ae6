-- Read by whose workers steps of runs were executed or are held now: the owners of their keys.
select distinct wanted.place, attempt.no, workers.owner
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select no, worker
    from attempts
    where attempts.tenant = wanted.tenant and attempts.run_id = wanted.run_id
    union all
    select no, worker
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id and steps.worker is not null
    offset 0
) as attempt
join workers on workers.no = attempt.worker
where workers.owner is not null
