-- Find runs with a business key, in any or in certain states and perhaps of one workflow, newest first, between two ids.
-- ?5 is JSON: [state, ...], or null.
select d.run_id
from run_details d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.tenant = ?1 and d.run_id < ?2 and d.run_id >= ?4 and d.business_key = ?7
    and (?5 is null or r.state in (select value from json_each(?5)))
    and (?6 is null or d.workflow = ?6)
order by d.run_id desc
limit ?3
