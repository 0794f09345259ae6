-- Delete the oldest decided firings of a tenant, if they are older than a moment and neither the run that they started nor
-- the one that they are about is kept. A firing that changes meanwhile stays.
delete from firings
using (
    select f.tenant, f.trigger_name, f.moment, f.state
    from firings f
    where f.tenant = $1 and f.watched = 0 and f.made_at < $2
        and not exists (select 1 from runs r where r.tenant = f.tenant and r.id = f.run_id)
        and not exists (select 1 from runs r where r.tenant = f.tenant and r.id = f.source::uuid)
    order by f.made_at
    limit $3
) as old
where firings.tenant = old.tenant and firings.trigger_name = old.trigger_name and firings.moment = old.moment
    and firings.state = old.state and firings.watched = 0
returning 1
