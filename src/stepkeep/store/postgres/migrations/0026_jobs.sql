-- Jobs that act on many runs, and what became of each run.

create table jobs (
    tenant text collate "C" not null,
    id text collate "C" not null,
    action text not null check (action in ('cancel', 'rerun')),
    state text not null check (state in ('running', 'done', 'stopped')),
    options bytea not null,
    created_at bigint not null,
    created_by text not null,
    vouched_by text,
    api_key text,
    idempotency_key text collate "C",
    digest bytea not null,
    seq bigint not null check (seq >= 0),
    lease_until bigint not null,
    holder text,
    ended_at bigint,
    primary key (tenant, id),
    constraint ended_job_has_a_time check ((state = 'running') = (ended_at is null))
);

create table job_runs (
    tenant text collate "C" not null,
    job_id text collate "C" not null,
    run_id uuid not null,
    state text not null check (state in ('waiting', 'done', 'unchanged', 'refused')),
    detail text,
    new_run_id text,
    primary key (tenant, job_id, run_id)
);

create unique index jobs_key on jobs (tenant, idempotency_key) where idempotency_key is not null;
create index jobs_due on jobs (lease_until) where state = 'running';
create index job_runs_waiting on job_runs (tenant, job_id, run_id) where state = 'waiting';
