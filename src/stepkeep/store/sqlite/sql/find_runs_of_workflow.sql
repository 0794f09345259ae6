-- Find runs of a workflow in any or in certain states, newest first, before a run. ?4 is JSON: [state, ...], or null.
select d.run_id
from run_details d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.tenant = ?1 and d.run_id < ?2 and d.workflow = ?5 and (?4 is null or r.state in (select value from json_each(?4)))
order by d.run_id desc
limit ?3
