-- Lock those of the given runs that have ended, are not locked, and may go.
select run.id::text
from unnest($2::text::uuid[]) as wanted (run_id)
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = wanted.run_id and runs.ended_at is not null
-- part: may_go
    for update skip locked
) as run
