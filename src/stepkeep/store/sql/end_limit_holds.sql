-- Delete the places of claims that end. $1 is JSON: [[tenant, run id, no, fence], ...].
delete from limit_holds
where (tenant, run_id, no, fence) in (
    select value->>0, (value->>1)::uuid, (value->>2)::int, (value->>3)::int from json_array_elements($1::text::json))
returning tenant, name, key, weight, seq
