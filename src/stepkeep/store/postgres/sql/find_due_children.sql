-- Find children about which something is to be done, the longest due first.
select
    tenant, run_id::text, no, activation, child_id::text, workflow, version, mode, state, requested_at, started_at,
    recall, recalled_at, ended_at, outcome, category, error, todo, todo_at, undoes::text
from children
where todo is not null and todo_at <= (select stepkeep_now() + $1::bigint)
    and (tenant, run_id) not in (select tenant, run_id from quarantine where released_at is null)
order by todo_at
limit $2::int
