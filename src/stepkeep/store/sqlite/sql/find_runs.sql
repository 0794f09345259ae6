-- Find runs of a tenant in certain states, newest first, before a run. ?4 is JSON: [state, ...].
select id
from runs
where tenant = ?1 and id < ?2 and state in (select value from json_each(?4))
order by id desc
limit ?3
