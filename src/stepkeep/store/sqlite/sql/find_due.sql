-- Find steps and runs with a due timer, oldest first.
select tenant, run_id, no
from (
    select * from (
        select tenant, run_id, no, due_at
        from steps
        where due_at <= ?1
            and not exists (
                select 1 from quarantine q where q.tenant = steps.tenant and q.run_id = steps.run_id and q.released_at is null)
        order by due_at
        limit ?2)
    union all
    select * from (
        select tenant, id, null, due_at
        from runs
        where due_at <= ?1
            and not exists (
                select 1 from quarantine q where q.tenant = runs.tenant and q.run_id = runs.id and q.released_at is null)
        order by due_at
        limit ?2)
)
order by due_at
limit ?2
