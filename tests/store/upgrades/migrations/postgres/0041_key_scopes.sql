-- Idempotency keys belong to a scope: the API key and what it replaced, or the tenant. Keys on record have the scope '',
-- which every caller of the tenant shares.

alter table idempotency_keys add column scope text collate "C" not null default '';
alter table idempotency_keys drop constraint idempotency_keys_pkey;
alter table idempotency_keys add primary key (tenant, operation, key, scope);

alter table jobs add column scope text collate "C" not null default '';

drop index jobs_key;
create unique index jobs_key on jobs (tenant, idempotency_key, scope) where idempotency_key is not null;

comment on column idempotency_keys.scope is 'Whose key it is: the first API key of a line, or tenant; empty: of any caller';
comment on column jobs.scope is 'Whose idempotency key it is: the first API key of a line, or tenant; empty: of any caller';
