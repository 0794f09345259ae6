-- Count the runs of a tenant before a run, up to a limit.
select count(*)
from (select id from runs where tenant = ?1 and id < ?2 order by id desc limit ?3)
