-- Count the unfinished runs of a tenant by state, up to a limit in all.
select live.state, count(*)
from (select state from runs where tenant = $1 and ended_at is null limit $2::int) as live
group by live.state
