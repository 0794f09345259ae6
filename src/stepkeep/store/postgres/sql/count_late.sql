-- Count the timers of a tenant that were due by a time, up to a limit each for steps and runs, and find the oldest.
select count(*), min(late.due_at)
from (
    (select due_at from steps where due_at <= $2::bigint and tenant = $1 order by due_at limit $3::int)
    union all
    (select due_at from runs where due_at <= $2::bigint and tenant = $1 order by due_at limit $3::int)) as late
