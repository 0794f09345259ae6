-- Read triggers. ?1 is JSON: [[tenant, name], ...].
select t.tenant, t.name, t.seq, t.workflow, t.version, t.kind, t.topic, t.spec, t.next_at,
    t.due_at, t.cursor_at, t.paused_at, t.paused_by, t.created_at, t.created_by, t.removed_at
from json_each(?1) w
cross join triggers t on t.tenant = w.value ->> 0 and t.name = w.value ->> 1
order by t.tenant, t.name
