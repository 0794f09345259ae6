-- Say when lines are looked at again. $1 is JSON: [[tenant, name, key, queue, due_at], ...].
update limit_lines
set due_at = (given.value->>4)::bigint
from json_array_elements($1::text::json) as given
where limit_lines.tenant = given.value->>0 and limit_lines.name = given.value->>1
    and limit_lines.key = given.value->>2 and limit_lines.queue = (given.value->>3)::bigint
