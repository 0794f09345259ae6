-- Make a dead cursor due now.
update deliveries
set dead_at = null, attempts = 0, ready_at = ?4
where tenant = ?1 and run_id = ?2 and sink = ?3 and dead_at is not null
returning fence
