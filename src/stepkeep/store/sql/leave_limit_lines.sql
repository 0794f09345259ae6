-- Park steps no more. $1 is JSON: [[tenant, run id, no], ...].
delete from limit_waits
where (tenant, run_id, no) in (
    select value->>0, (value->>1)::uuid, (value->>2)::int from json_array_elements($1::text::json))
