-- Find runs of a tenant between two ids that ended by a moment, oldest first.
select id
from runs
where tenant = ?1 and id > ?2 and id < ?3 and ended_at <= ?4
order by id
limit ?5
