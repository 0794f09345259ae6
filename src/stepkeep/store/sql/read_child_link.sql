-- Read the link of a child to its parent.
select
    tenant, run_id::text, no, activation, child_id::text, workflow, version, mode, state, requested_at, started_at,
    recall, recalled_at, ended_at, outcome, category, error, todo, todo_at, undoes::text
from children
where tenant = $1 and child_id = $2::uuid
