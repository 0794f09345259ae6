-- Find the lines of these queues that are to be looked at, the oldest first. $1 is JSON: [queue, ...].
select limit_lines.tenant, limit_lines.name, limit_lines.key, limit_lines.queue, limit_lines.due_at, limit_keys.seq,
    limit_keys.held, limit_keys.tat, limit_keys.freed, limit_keys.used_at
from limit_lines
join limit_keys on limit_keys.tenant = limit_lines.tenant and limit_keys.name = limit_lines.name
    and limit_keys.key = limit_lines.key
where limit_lines.queue in (select json_array_elements_text($1::text::json)::bigint)
    and limit_lines.due_at <= (select stepkeep_now() + $2::bigint)
order by limit_lines.due_at, limit_lines.tenant, limit_lines.name, limit_lines.key, limit_lines.queue
limit $3::int
