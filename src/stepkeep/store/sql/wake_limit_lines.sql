-- Look at the lines of keys again. $1 is JSON: [[tenant, name, key], ...].
update limit_lines
set due_at = $2::bigint
from json_array_elements($1::text::json) as given
where limit_lines.tenant = given.value->>0 and limit_lines.name = given.value->>1
    and limit_lines.key = given.value->>2
