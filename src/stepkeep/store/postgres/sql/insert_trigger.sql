-- Add a trigger, unless there is one of its name.
insert into triggers (
    tenant, name, seq, workflow, version, kind, topic, spec, next_at, due_at, cursor_at, paused_at, paused_by,
    created_at, created_by, removed_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
on conflict (tenant, name) do nothing
returning seq
