-- List the queues of a tenant.
select id, spec
from queues
where tenant = $1
order by id
