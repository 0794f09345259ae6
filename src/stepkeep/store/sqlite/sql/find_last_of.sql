-- Count the newest runs of a tenant between two ids, up to a limit, and find the last of them.
select count(*), min(run_id)
from (select run_id from run_details where tenant = ?1 and run_id < ?2 and run_id >= ?4 order by run_id desc limit ?3)
