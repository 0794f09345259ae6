-- Find flows of a tenant that hold until other code is there, by run and number.
select run_id::text, no, queue, note
from steps
where tenant = $1 and state = 'awaiting_approval' and fence > 0 and note like '%"exhausted":true,"tried":[%' and run_id > $2
order by run_id, no
limit $3
