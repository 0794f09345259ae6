-- Insert the places of claims. $1 is JSON: [[tenant, run id, no, fence, name, key, seq, weight, step, held_at], ...].
insert into limit_holds (tenant, run_id, no, fence, name, key, seq, weight, step, held_at)
select value->>0, (value->>1)::uuid, (value->>2)::int, (value->>3)::int, value->>4, value->>5, (value->>6)::bigint,
    (value->>7)::int, value->>8, (value->>9)::bigint
from json_array_elements($1::text::json)
