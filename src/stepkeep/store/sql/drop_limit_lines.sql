-- Delete lines in which no step waits. $1 is JSON: [[tenant, name, key, queue], ...].
delete from limit_lines
where (tenant, name, key, queue) in (
        select value->>0, value->>1, value->>2, (value->>3)::bigint from json_array_elements($1::text::json))
    and not exists (
        select 1 from limit_waits w
        where w.tenant = limit_lines.tenant and w.name = limit_lines.name and w.key = limit_lines.key
            and w.queue = limit_lines.queue)
