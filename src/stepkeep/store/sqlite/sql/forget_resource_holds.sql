-- Delete the rows of resources that no step of the tenant holds any more.
delete from resource_holds
where tenant = ?1
    and not exists (
        select 1 from steps s
        where s.tenant = resource_holds.tenant and s.run_id = resource_holds.run_id and s.no = resource_holds.no
            and s.fence = resource_holds.fence and s.worker is not null)
