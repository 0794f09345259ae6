-- Note that a child starts, if it is still requested.
update children
set state = 'started', started_at = $5, todo = null, todo_at = null
where tenant = $1 and run_id = $2::uuid and no = $3 and activation = $4 and state = 'requested'
returning no
