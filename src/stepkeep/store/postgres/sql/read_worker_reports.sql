-- Read the reports of workers by their numbers.
select reports.worker, reports.reported_at, reports.body
from unnest($2::text::int[]) as asked (no)
join worker_reports as reports on reports.worker = asked.no
where reports.tenant = $1
