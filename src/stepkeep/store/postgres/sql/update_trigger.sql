-- Change a trigger that is at the sequence $17.
update triggers
set seq = $3, workflow = $4, version = $5, kind = $6, topic = $7, spec = $8, next_at = $9, due_at = $10,
    cursor_at = $11, paused_at = $12, paused_by = $13, created_at = $14, created_by = $15, removed_at = $16
where tenant = $1 and name = $2 and seq = $17
returning seq
