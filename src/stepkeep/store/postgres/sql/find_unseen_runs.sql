-- Find runs of a workflow after a given id for which a trigger has no firing, oldest first.
select details.run_id::text
from run_details as details
where details.tenant = $1 and details.workflow = $3 and details.run_id > $4::text::uuid
    and not exists (
        select 1 from firings
        where firings.tenant = details.tenant and trigger_name = $2 and moment = details.run_id::text)
order by details.run_id
limit $5
