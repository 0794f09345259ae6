-- Find runs of a tenant in any or in certain states, newest first, before a run. ?4 is JSON: [state, ...], or null.
select id
from runs
where tenant = ?1 and id < ?2 and (?4 is null or state in (select value from json_each(?4)))
order by id desc
limit ?3
