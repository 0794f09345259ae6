-- Find runs that were stopped by a failure, a timeout or a cancel, in certain states and perhaps of one workflow,
-- newest first, between two ids. ?5 is JSON: [state, ...].
select runs.id
from runs indexed by runs_troubled
where runs.tenant = ?1 and runs.id < ?2 and runs.id >= ?4 and runs.cause is not null
    and runs.state in (select value from json_each(?5))
    and (?6 is null or exists (
        select 1 from run_details d where d.tenant = runs.tenant and d.run_id = runs.id and d.workflow = ?6))
order by runs.id desc
limit ?3
