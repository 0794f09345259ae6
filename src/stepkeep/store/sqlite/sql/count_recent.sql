-- Count the newest runs of a tenant by state: those after an id, up to a limit in all.
select state, count(*)
from (select state from runs where tenant = ?1 and id > ?2 order by id desc limit ?3)
group by state
