-- Note how a child ended; its parent is to be told if it waits for that.
update children
set state = 'ended', outcome = $3, ended_at = $4::bigint, category = $5, error = $6,
    todo = case mode when 'awaited' then 'tell' end, todo_at = case mode when 'awaited' then $4::bigint end
where tenant = $1 and child_id = $2::uuid and state = 'started'
