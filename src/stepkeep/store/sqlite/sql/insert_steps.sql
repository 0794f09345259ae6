-- Insert new steps.
insert into steps (
    tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet,
    settled, category, error, note
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
