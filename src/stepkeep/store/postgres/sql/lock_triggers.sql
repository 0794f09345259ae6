-- Lock triggers in the order of their names, and read them.
select tenant, name, seq, workflow, version, kind, topic, spec, next_at, due_at, cursor_at, paused_at, paused_by,
    created_at, created_by, removed_at
from triggers
where (tenant, name) in (select * from unnest($1::text[], $2::text[]))
order by tenant, name
for update
