-- Read awaiting firings whose run has ended or is gone.
select f.tenant, f.trigger_name, f.moment, f.due_at, f.state, f.watched, f.made_at, f.depth, f.run_id::text, f.source,
    f.backfill, f.reason, f.given, r.state as run_state
from firings as f
left join runs as r on r.tenant = f.tenant and r.id = f.source::uuid
where f.tenant = $1 and f.trigger_name = $2 and f.watched = 1 and f.state = 'awaiting' and (r.id is null or r.ended_at is not null)
order by f.due_at, f.moment
limit $3
