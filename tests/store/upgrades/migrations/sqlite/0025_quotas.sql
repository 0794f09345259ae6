-- Quotas of API keys, and the unfinished runs that count against a quota.

alter table api_keys add column max_concurrent_runs integer;
alter table api_keys add column max_requests_per_min integer;

create trigger key_keeps_its_quotas before update on api_keys
when old.max_concurrent_runs is not new.max_concurrent_runs
    or old.max_requests_per_min is not new.max_requests_per_min
begin
    select raise(abort, 'a key keeps its quotas: rotate it, or make another one');
end;

create table quota_scopes (
    tenant text not null,
    scope  text not null,
    primary key (tenant, scope)
) strict, without rowid;

create table quota_runs (
    tenant   text not null,
    scope    text not null,
    run_id   text not null,
    taken_at integer not null,
    primary key (tenant, scope, run_id)
) strict, without rowid;
