-- Park steps under keys. $1 is JSON: [[tenant, run id, no, name, key, queue, priority, asked_at], ...].
insert into limit_waits (tenant, run_id, no, name, key, queue, priority, asked_at)
select value->>0, (value->>1)::uuid, (value->>2)::int, value->>3, value->>4, (value->>5)::bigint, (value->>6)::int,
    (value->>7)::bigint
from json_array_elements($1::text::json)
where true
on conflict (tenant, run_id, no) do update set
    name = excluded.name, key = excluded.key, queue = excluded.queue, priority = excluded.priority,
    asked_at = excluded.asked_at
