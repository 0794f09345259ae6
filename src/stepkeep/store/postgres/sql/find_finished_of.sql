-- Find runs of a workflow between two ids that ended by a given time, oldest first.
select run.id::text
from run_details as details
cross join lateral (
    select id
    from runs
    where runs.tenant = details.tenant and runs.id = details.run_id and runs.ended_at <= $4::bigint
    offset 0
) as run
where details.tenant = $1 and details.workflow = $6 and details.run_id > $2::uuid and details.run_id < $3::uuid
    and (details.tenant, details.run_id) not in (select tenant, run_id from quarantine where released_at is null)
order by details.run_id
limit $5
