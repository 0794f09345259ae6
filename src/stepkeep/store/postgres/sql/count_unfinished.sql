-- Count the unfinished runs of a tenant, up to a limit; the index alone is read.
select count(*)
from (select from runs where tenant = $1 and ended_at is null limit $2::int) as live
