-- What diagnosis needs beside the record: what each worker serves, and the evidence of failed attempts. Neither is part
-- of the record. A worker overwrites its report with each heartbeat; evidence is deleted with its run.

create table worker_reports (
    tenant      text not null,
    worker      integer not null,
    reported_at integer not null,
    body        text not null check (json_valid(body)),
    primary key (tenant, worker)
) strict, without rowid;

create table attempt_evidence (
    tenant text not null,
    run_id text not null,
    no     integer not null,
    fence  integer not null,
    body   text not null check (json_valid(body)),
    primary key (tenant, run_id, no, fence)
) strict;
