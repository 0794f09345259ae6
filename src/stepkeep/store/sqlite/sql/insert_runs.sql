-- Insert new runs.
insert into runs (
    tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox, cause,
    policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
