-- Find unfinished runs of a workflow after a given id for which a trigger has no firing, oldest first.
select runs.id
from runs indexed by runs_live
where runs.tenant = ?1 and runs.id > ?4 and runs.ended_at is null
    and (select d.workflow from run_details d where d.tenant = runs.tenant and d.run_id = runs.id) = ?3
    and not exists (
        select 1 from firings
        where firings.tenant = runs.tenant and trigger_name = ?2 and moment = runs.id)
order by runs.id
limit ?5
