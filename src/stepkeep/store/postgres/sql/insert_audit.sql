-- Add entries to the audit log. $1 is a JSON array of rows.
insert into audit (tenant, id, at, actor, key, vouched_by, operation, target, outcome, code, request_id, address,
    seq, hash)
select value ->> 0, value ->> 1, (value ->> 2)::bigint, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, (value ->> 12)::bigint, value ->> 13
from json_array_elements($1::text::json)
