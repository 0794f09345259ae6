-- Delete the rows of resources that no step of the tenant holds any more.
delete from resource_holds h
where h.tenant = $1
    and not exists (
        select 1 from steps s
        where s.tenant = h.tenant and s.run_id = h.run_id and s.no = h.no and s.fence = h.fence and s.worker is not null)
