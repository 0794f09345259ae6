-- Call a child back: one that has not started never does, another one is to be cancelled.
update children
set recall = $5, recalled_at = $6::bigint, todo_at = $6::bigint,
    todo = case state when 'requested' then 'tell' else 'cancel' end,
    state = case state when 'requested' then 'withdrawn' else state end
where tenant = $1 and run_id = $2::uuid and no = $3 and activation = $4 and child_id = $7::uuid
    and state in ('requested', 'started')
