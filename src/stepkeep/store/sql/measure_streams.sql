-- Tell how many bytes the streams of a run have.
select total
from stream_rows
where tenant = $1 and run_id = $2::uuid
order by seq desc
limit 1
