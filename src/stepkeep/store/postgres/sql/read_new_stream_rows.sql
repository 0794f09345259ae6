-- Read rows of streams of several runs, each after one, in order.
select child.tenant, child.run_id::text, child.seq, child.no, child.name, child.fence, child.start, child.count,
    child.total, child.at, child.after_fence, child.after_place, child.body
from json_array_elements($2::text::json) as wanted
cross join lateral (
    select *
    from stream_rows
    where tenant = $1 and run_id = (wanted.value->>0)::uuid and seq > (wanted.value->>1)::bigint
    order by seq
    limit $3::bigint
) as child
order by child.run_id, child.seq
