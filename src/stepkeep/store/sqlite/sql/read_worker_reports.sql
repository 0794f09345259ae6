-- Read the reports of workers by their numbers. ?2 is JSON: [number, ...].
select worker, reported_at, body
from worker_reports
where tenant = ?1 and worker in (select value from json_each(?2))
