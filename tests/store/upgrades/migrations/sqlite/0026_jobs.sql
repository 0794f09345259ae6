-- Jobs that act on many runs, and what became of each run.

create table jobs (
    tenant text not null,
    id text not null,
    action text not null check (action in ('cancel', 'rerun')),
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

create table job_runs (
    tenant text not null,
    job_id text not null,
    run_id text not null,
    state text not null check (state in ('waiting', 'done', 'unchanged', 'refused')),
    detail text,
    new_run_id text,
    primary key (tenant, job_id, run_id)
) strict, without rowid;

create unique index jobs_key on jobs (tenant, idempotency_key) where idempotency_key is not null;
create index jobs_due on jobs (lease_until) where state = 'running';
create index job_runs_waiting on job_runs (tenant, job_id, run_id) where state = 'waiting';
