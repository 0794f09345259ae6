-- Count the cursors of each sink that are not idle: those that are waiting, those that are dead, and the oldest time.
select sink, count(ready_at), count(dead_at), min(ready_at)
from deliveries
where tenant = $1 and (ready_at is not null or dead_at is not null)
group by sink
order by sink
