-- Replace what a worker says about itself.
insert into worker_reports (tenant, worker, reported_at, body)
values ($1, $2, stepkeep_now() + $3::bigint, $4)
on conflict (tenant, worker) do update set reported_at = excluded.reported_at, body = excluded.body
