-- Count the unfinished runs of a tenant by state, up to a limit in all.
select state, count(*)
from (select state from runs indexed by runs_live where tenant = ?1 and ended_at is null limit ?2)
group by state
