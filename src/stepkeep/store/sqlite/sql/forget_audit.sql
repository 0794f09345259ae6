-- Delete the oldest entries of a tenant's audit log outside of its chain, if they are older than a moment.
delete from audit
where (tenant, at, id) in (
    select tenant, at, id from audit where tenant = ?1 and seq is null and at < ?2 order by at, id limit ?3
)
returning 1
