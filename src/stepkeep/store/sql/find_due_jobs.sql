-- Find jobs that no worker carries out at present, the oldest first.
select tenant, id
from jobs
where state = 'running' and lease_until <= (select stepkeep_now() + $1::bigint)
order by lease_until
limit $2
