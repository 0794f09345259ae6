-- Read which runs hold business keys.
select held.tenant, held.key, held.run_id::text
from unnest($1::text[], $2::text[]) as wanted (tenant, key)
cross join lateral (
    select tenant, key, run_id
    from business_keys
    where business_keys.tenant = wanted.tenant and business_keys.key = wanted.key
    offset 0
) as held
