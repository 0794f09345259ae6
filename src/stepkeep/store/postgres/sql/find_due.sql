-- Find steps and runs with a due timer, oldest first.
select due.tenant, due.run_id::text, due.no
from (
    (select tenant, run_id, no, due_at
    from steps
    where due_at <= (select stepkeep_now() + $1::bigint)
        and (steps.tenant, steps.run_id) not in (select tenant, run_id from quarantine where released_at is null)
    order by due_at
    limit $2::int)
    union all
    (select tenant, id, null, due_at
    from runs
    where due_at <= (select stepkeep_now() + $1::bigint)
        and (runs.tenant, runs.id) not in (select tenant, run_id from quarantine where released_at is null)
    order by due_at
    limit $2::int)
) as due
order by due.due_at
limit $2::int
