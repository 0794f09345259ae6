-- Find runs of a workflow between two ids that ended by a given time and may go, oldest first.
select runs.id::text
from run_details as details
cross join lateral (
    select tenant, id
    from runs
    where runs.tenant = details.tenant and runs.id = details.run_id and runs.ended_at <= $4::bigint
    offset 0
) as runs
where details.tenant = $1 and details.workflow = $6 and details.run_id > $2::uuid and details.run_id < $3::uuid
-- part: may_go
order by details.run_id
limit $5
