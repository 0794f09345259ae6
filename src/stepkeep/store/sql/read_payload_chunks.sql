-- Read the chunks of a large payload, in order.
select body
from payload_chunks
where tenant = $1 and run_id = $2::uuid and digest = $3
order by no
