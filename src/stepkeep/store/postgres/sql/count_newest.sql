-- Count the runs of a tenant before a run, up to a limit.
select count(*)
from (select from runs where tenant = $1 and id < $2::uuid order by runs.id desc limit $3) as newest
