-- Count the timers of a tenant that were due by a time, up to a limit each for steps and runs, and find the oldest.
select count(*), min(due_at)
from (
    select * from (select due_at from steps indexed by steps_due where due_at <= ?2 and tenant = ?1 order by due_at limit ?3)
    union all
    select * from (select due_at from runs indexed by runs_due where due_at <= ?2 and tenant = ?1 order by due_at limit ?3))
