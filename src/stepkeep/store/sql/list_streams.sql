-- List the streams of a run: what each attempt has written to each.
select no, name, fence, max(start + count), sum(octet_length(body))::bigint, min(seq), max(seq), max(after_fence),
    max(after_place)
from stream_rows
where tenant = $1 and run_id = $2::uuid
group by no, name, fence
order by no, name, fence
