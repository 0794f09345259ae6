-- Give away the undo of what a run adopted: a retry of that run takes it.
update adoptions set owned = 0
where tenant = ?1 and run_id = ?2 and owned = 1
