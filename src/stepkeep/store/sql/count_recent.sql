-- Count the newest runs of a tenant by state: those after an id, up to a limit in all.
select recent.state, count(*)
from (select state from runs where tenant = $1 and id > $2::uuid order by runs.id desc limit $3::int) as recent
group by recent.state
