-- Write rows of streams of a run, up to $9 bytes, while an attempt holds its step. $8 is JSON as in write_stream.
insert into stream_rows (
    tenant, run_id, seq, no, name, fence, start, count, total, at, after_fence, after_place, body)
select $1, $2::uuid, coalesce(last.seq, 0) + (given.value->>0)::bigint, (given.value->>1)::int, given.value->>2,
    (given.value->>3)::int, (given.value->>4)::int, (given.value->>5)::int,
    coalesce(last.total, 0) + (given.value->>6)::bigint, (select stepkeep_now() + $6::bigint),
    (given.value->>7)::int, (given.value->>8)::int, given.value->>9
from json_array_elements($8::text::json) as given
left join (
    select seq, total from stream_rows where tenant = $1 and run_id = $2::uuid order by seq desc limit 1
) as last on true
where coalesce(last.total, 0) + $7::bigint <= $9::bigint
    and exists (
        select 1 from steps
        where tenant = $1 and run_id = $2::uuid and no = $3 and fence = $4 and worker = $5
            and state in ('running', 'validating') and due_at >= (select stepkeep_now() + $6::bigint))
    and not exists (
        select 1 from quarantine where tenant = $1 and run_id = $2::uuid and released_at is null)
returning seq
