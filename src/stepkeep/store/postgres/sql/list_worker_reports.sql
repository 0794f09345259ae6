-- List the reports of the workers that are not shut down, and of the newest workers.
select reports.worker, reports.reported_at, reports.body
from workers
join worker_reports as reports on reports.tenant = workers.tenant and reports.worker = workers.no
where workers.tenant = $1 and workers.state <> 'shutdown'
union
(select worker, reported_at, body from worker_reports where tenant = $1 order by worker desc limit $2)
