-- Find jobs that no worker carries out at present, the oldest first.
select tenant, id
from jobs
where state = 'running' and lease_until <= ?1
order by lease_until
limit ?2
