-- Begin lines under keys, or leave those that there are. $1 is JSON: [[tenant, name, key, queue, due_at], ...].
insert into limit_lines (tenant, name, key, queue, due_at)
select value->>0, value->>1, value->>2, (value->>3)::bigint, (value->>4)::bigint
from json_array_elements($1::text::json)
where true
on conflict (tenant, name, key, queue) do nothing
