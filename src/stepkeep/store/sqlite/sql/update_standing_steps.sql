-- Write step rows, only over leases that are still valid at a given time.
update steps
set queue = ?4, priority = ?5, state = ?6, ready_at = ?7, due_at = ?8, fence = ?9, worker = ?10, claimed_at = ?11,
    attempts = ?12, losses = ?13, unmet = ?14, settled = ?15, category = ?16, error = ?17, note = ?18
where tenant = ?1 and run_id = ?2 and no = ?3 and (worker is null or due_at >= ?19)
