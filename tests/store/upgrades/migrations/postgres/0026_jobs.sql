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

comment on table jobs is 'Jobs that act on many runs: cancel or rerun; workers carry them out';
comment on column jobs.tenant is 'Whose row this is; part of every key';
comment on column jobs.id is 'The id of the job';
comment on column jobs.action is 'What is done to each run: cancel or rerun';
comment on column jobs.state is 'running, done or stopped';
comment on column jobs.options is 'What the action is given (JSON)';
comment on column jobs.created_at is 'When it was made (microseconds since 1970)';
comment on column jobs.created_by is 'Who asked for it';
comment on column jobs.vouched_by is 'The program that vouched for that person; null: none';
comment on column jobs.api_key is 'The id of the API key that was used; null: none';
comment on column jobs.idempotency_key is 'The key under which it was asked for; null: none';
comment on column jobs.digest is 'SHA-256 of what was asked for, to tell a repeated request from another one';
comment on column jobs.seq is 'The fence: grows with every claim by a worker';
comment on column jobs.lease_until is 'Until when a worker holds it (microseconds since 1970)';
comment on column jobs.holder is 'The worker that holds it; null: none';
comment on column jobs.ended_at is 'When it was done or stopped (microseconds since 1970); null: it runs';
comment on table job_runs is 'The runs of a job, fixed when it was made, and what became of each';
comment on column job_runs.tenant is 'Whose row this is; part of every key';
comment on column job_runs.job_id is 'The job';
comment on column job_runs.run_id is 'The run to act on';
comment on column job_runs.state is 'waiting, done, unchanged or refused';
comment on column job_runs.detail is 'Why it was refused or unchanged; null: nothing to say';
comment on column job_runs.new_run_id is 'With rerun: the new run; null: none';
