-- List the triggers that start a workflow.
select tenant, name, seq, workflow, version, kind, topic, spec, next_at, due_at, cursor_at, paused_at, paused_by,
    created_at, created_by, removed_at
from triggers
where tenant = $1 and workflow = $2 and removed_at is null
order by name
