-- Find the first steps of a line.
select w.tenant, w.run_id::text, w.no, runs.definition_id
from limit_waits w
join runs on runs.tenant = w.tenant and runs.id = w.run_id
where w.tenant = $1 and w.name = $2 and w.key = $3 and w.queue = $4::bigint
    and not exists (
        select 1 from quarantine q where q.tenant = w.tenant and q.run_id = w.run_id and q.released_at is null)
order by w.priority desc, w.asked_at, w.run_id, w.no
limit $5::int
