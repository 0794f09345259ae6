-- Find the runs that repeat or continue a run, newest first.
select run_id::text
from run_details
where tenant = $1 and rerun_of = $2::text::uuid
order by run_id desc
limit $3
