-- Delete the oldest decided firings of a tenant, if they are older than a moment and neither the run that they started nor
-- the one that they are about is kept.
delete from firings
where (tenant, trigger_name, moment) in (
    select f.tenant, f.trigger_name, f.moment
    from firings f
    where f.tenant = ?1 and f.watched = 0 and f.made_at < ?2
        and not exists (select 1 from runs r where r.tenant = f.tenant and r.id in (f.run_id, f.source))
    order by f.made_at
    limit ?3
)
returning 1
