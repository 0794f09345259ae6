-- Read what the handler of a step recorded, in the order of recording, after a place.
select tenant, run_id::text, no, name, fence, seq, at, value
from checkpoints
where tenant = $1 and run_id = $2 and no = $3 and (seq, name) > ($4, $5)
order by seq, name
limit $6
