-- Read rows of all streams of a run after one, in order.
select tenant, run_id::text, seq, no, name, fence, start, count, total, at, after_fence, after_place, body
from stream_rows
where tenant = $1 and run_id = $2::uuid and seq > $3
order by seq
limit $4
