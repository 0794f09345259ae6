-- Read the resources that steps of a tenant hold: rows whose step is held under the same fence.
select h.tenant, h.run_id::text, h.no, h.fence, h.resource, h.step, h.mode, h.units, h.held_at
from resource_holds h
join steps s on s.tenant = h.tenant and s.run_id = h.run_id and s.no = h.no
where h.tenant = $1 and s.fence = h.fence and s.worker is not null
order by h.resource, h.run_id, h.no
