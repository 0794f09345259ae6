-- Read the lines of keys of limits. $1 is JSON: [[tenant, name, key], ...].
select limit_lines.tenant, limit_lines.name, limit_lines.key, limit_lines.queue
from json_array_elements($1::text::json) as given
join limit_lines on limit_lines.tenant = given.value->>0 and limit_lines.name = given.value->>1
    and limit_lines.key = given.value->>2
