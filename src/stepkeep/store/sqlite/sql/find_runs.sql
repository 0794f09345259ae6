-- Find runs of a tenant in any or in certain states, newest first, between two ids. ?5 is JSON: [state, ...], or null.
select id
from runs
where tenant = ?1 and id < ?2 and id >= ?4 and (?5 is null or state in (select value from json_each(?5)))
order by id desc
limit ?3
