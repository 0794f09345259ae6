-- The first key of a line of keys that replace each other, and the sessions of a key.

alter table api_keys add column lineage text;

-- A revoked key never changes, and needs none: it is used for nothing.
with recursive lines (tenant, id, first) as (
    select tenant, id, id from api_keys where replaces is null
    union all
    select k.tenant, k.id, lines.first
    from lines
    join api_keys k on k.tenant = lines.tenant and k.replaces = lines.id
)
update api_keys
set lineage = lines.first
from lines
where lines.tenant = api_keys.tenant and lines.id = api_keys.id
    and api_keys.replaces is not null and api_keys.revoked_at is null;

create index sessions_key on sessions (tenant, key, id) where ended_at is null;

comment on column api_keys.lineage is 'The first key that it replaces through others; null: it replaces none';
