-- List the reports of the workers that are not shut down, and of the newest workers.
select r.worker, r.reported_at, r.body
from worker_reports r
where r.tenant = ?1 and r.worker in (
    select w.no from workers w indexed by workers_living where w.tenant = ?1 and w.state <> 'shutdown')
union
select * from (
    select n.worker, n.reported_at, n.body from worker_reports n where n.tenant = ?1 order by n.worker desc limit ?2)
