-- Set ready steps aside once more: they wait in a line. $1 is JSON: [[tenant, run id, no], ...].
update steps
set ready_at = ready_at + 100000000000000000
where ready_at >= 100000000000000000 and ready_at < 200000000000000000
    and (tenant, run_id, no) in (
        select value->>0, (value->>1)::uuid, (value->>2)::int from json_array_elements($1::text::json))
