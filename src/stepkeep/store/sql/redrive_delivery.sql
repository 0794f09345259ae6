-- Make a dead cursor due now.
update deliveries
set dead_at = null, attempts = 0, ready_at = stepkeep_now() + $4::bigint
where tenant = $1 and run_id = $2::uuid and sink = $3 and dead_at is not null
returning fence
