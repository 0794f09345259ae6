-- Read what an attempt has written to streams, in order.
select name, start, count, body
from stream_rows
where tenant = $1 and run_id = $2::uuid and no = $3 and fence = $4
order by name, start
