-- Note what was done about a child, if it was still to be done.
update children
set state = $5, started_at = $6, ended_at = $7, outcome = $8, category = $9, error = $10, todo = $11, todo_at = $12
where tenant = $1 and run_id = $2::uuid and no = $3 and activation = $4 and todo = $13
returning no
