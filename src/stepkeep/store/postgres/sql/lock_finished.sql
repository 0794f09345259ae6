-- Lock those of the given runs that are finished and not locked.
select run.id::text
from unnest($2::text::uuid[]) as wanted (run_id)
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = wanted.run_id and runs.ended_at is not null
        and (runs.tenant, runs.id) not in (select tenant, run_id from quarantine where released_at is null)
    for update skip locked
) as run
