-- Read whether names are registered, and as what, and whether their tenants allow vouching.
select wanted.tenant, wanted.name, principals.name is not null, principals.disabled_at is not null,
    principals.kind = 'service', tenants.vouching
from unnest($1::text[], $2::text[]) as wanted (tenant, name)
left join principals on principals.tenant = wanted.tenant and principals.name = wanted.name
left join tenants on tenants.name = wanted.tenant
