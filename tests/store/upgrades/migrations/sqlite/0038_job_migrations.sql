-- Jobs may migrate runs. The table is written anew, because its check changes; its indexes go with the old one.

create table jobs_with_migrations (
    tenant text not null,
    id text not null,
    action text not null check (action in ('cancel', 'rerun', 'pause', 'resume', 'migrate')),
    state text not null check (state in ('running', 'done', 'stopped')),
    options blob not null,
    created_at integer not null,
    created_by text not null,
    vouched_by text,
    api_key text,
    idempotency_key text,
    digest blob not null,
    seq integer not null check (seq >= 0),
    lease_until integer not null,
    holder text,
    ended_at integer,
    primary key (tenant, id),
    constraint ended_job_has_a_time check ((state = 'running') = (ended_at is null))
) strict;

insert into jobs_with_migrations (
    tenant, id, action, state, options, created_at, created_by, vouched_by, api_key,
    idempotency_key, digest, seq, lease_until, holder, ended_at)
select
    tenant, id, action, state, options, created_at, created_by, vouched_by, api_key,
    idempotency_key, digest, seq, lease_until, holder, ended_at
from jobs;

drop table jobs;

alter table jobs_with_migrations rename to jobs;

create unique index jobs_key on jobs (tenant, idempotency_key) where idempotency_key is not null;
create index jobs_due on jobs (lease_until) where state = 'running';
