-- What diagnosis needs beside the record: what each worker serves, and the evidence of failed attempts. Neither is part
-- of the record. A worker overwrites its report with each heartbeat; evidence is deleted with its run.

create table worker_reports (
    tenant text collate "C" not null,
    worker integer not null,
    reported_at bigint not null,
    body text not null,
    primary key (tenant, worker)
) with (fillfactor = 50);

create table attempt_evidence (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null,
    body text not null,
    primary key (run_id, no, fence, tenant)
);

comment on table worker_reports is 'What each worker last said about itself, at its latest heartbeat';
comment on column worker_reports.tenant is 'Whose worker it is';
comment on column worker_reports.worker is 'The number of the worker';
comment on column worker_reports.reported_at is 'When it was said, in microseconds since 1970';
comment on column worker_reports.body is 'JSON: handlers, queues, places and how many are held, host, version';
comment on table attempt_evidence is 'Why attempts failed: traceback, inputs and log lines, bounded and redacted';
comment on column attempt_evidence.tenant is 'Whose run it is';
comment on column attempt_evidence.run_id is 'The run';
comment on column attempt_evidence.no is 'The number of the step in the plan';
comment on column attempt_evidence.fence is 'The fence of the attempt';
comment on column attempt_evidence.body is 'JSON: traceback, inputs, log';
