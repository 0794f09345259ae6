-- Idempotency keys belong to a scope: the API key and what it replaced, or the tenant. Keys on record have the scope '',
-- which every caller of the tenant shares. The table is written anew, because its primary key changes.

create table idempotency_keys_in_scopes (
    tenant      text not null,
    operation   text not null,
    key         text not null,
    fingerprint text not null,
    run_id      text not null,
    scope       text not null default '',
    primary key (tenant, operation, key, scope)
) strict, without rowid;

insert into idempotency_keys_in_scopes (tenant, operation, key, fingerprint, run_id)
select tenant, operation, key, fingerprint, run_id from idempotency_keys;

drop table idempotency_keys;

alter table idempotency_keys_in_scopes rename to idempotency_keys;

create index idempotency_keys_run on idempotency_keys (tenant, run_id);

alter table jobs add column scope text not null default '';

drop index jobs_key;
create unique index jobs_key on jobs (tenant, idempotency_key, scope) where idempotency_key is not null;
