-- Read the children of a run.
select
    tenant, run_id::text, no, activation, child_id::text, workflow, version, mode, state, requested_at, started_at,
    recall, recalled_at, ended_at, outcome, category, error, todo, todo_at, undoes::text
from children
where tenant = $1 and run_id = $2::uuid
order by no, activation
limit $3::int
