-- Write rows of streams of a run. $4 is JSON: [[place, no, name, fence, start, count, bytes, after, after, body], ...].
insert into stream_rows (
    tenant, run_id, seq, no, name, fence, start, count, total, at, after_fence, after_place, body)
select $1, $2::uuid, coalesce(last.seq, 0) + (given.value->>0)::bigint, (given.value->>1)::int, given.value->>2,
    (given.value->>3)::int, (given.value->>4)::int, (given.value->>5)::int,
    coalesce(last.total, 0) + (given.value->>6)::bigint, $3::bigint, (given.value->>7)::int, (given.value->>8)::int,
    given.value->>9
from json_array_elements($4::text::json) as given
left join (
    select seq, total from stream_rows where tenant = $1 and run_id = $2::uuid order by seq desc limit 1
) as last on true
