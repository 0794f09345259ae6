-- Record that another person caused a run too: the one who started it, if it was idle.
update run_details set asked_before = $3 where tenant = $1 and run_id = $2::uuid
