-- Ask for a child run.
insert into children (
    tenant, run_id, no, activation, child_id, workflow, version, mode, state, requested_at, started_at, recall,
    recalled_at, ended_at, outcome, category, error, todo, todo_at, undoes
) values (
    $1, $2::uuid, $3, $4, $5::uuid, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20::uuid
)
