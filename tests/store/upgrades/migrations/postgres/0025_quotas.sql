-- Quotas of API keys, and the unfinished runs that count against a quota.

alter table api_keys add column max_concurrent_runs integer;
alter table api_keys add column max_requests_per_min integer;

create trigger key_keeps_its_quotas after update on api_keys for each row
    when (old.max_concurrent_runs is distinct from new.max_concurrent_runs
        or old.max_requests_per_min is distinct from new.max_requests_per_min)
    execute function stepkeep_refuse('a key keeps its quotas: rotate it, or make another one');

create table quota_scopes (
    tenant text collate "C" not null,
    scope text collate "C" not null,
    primary key (tenant, scope)
);

create table quota_runs (
    tenant text collate "C" not null,
    scope text collate "C" not null,
    run_id uuid not null,
    taken_at bigint not null,
    primary key (tenant, scope, run_id)
);

comment on column api_keys.max_concurrent_runs is 'How many unfinished runs the key may have; null: no limit of its own';
comment on column api_keys.max_requests_per_min is 'How many requests a minute; null: no limit of its own';
comment on table quota_scopes is 'What a quota of runs is counted for: a key, or the whole tenant; its row is the lock';
comment on column quota_scopes.tenant is 'Whose row this is; part of every key';
comment on column quota_scopes.scope is 'key and the id of the key, or tenant';
comment on table quota_runs is 'Runs that count against a quota; rows of ended runs are deleted by the next start';
comment on column quota_runs.tenant is 'Whose row this is; part of every key';
comment on column quota_runs.scope is 'What it is counted for';
comment on column quota_runs.run_id is 'The run, which may not exist yet';
comment on column quota_runs.taken_at is 'When its place was taken (microseconds since 1970)';
