-- Execution slots: runs under a limit on running runs, waiting or granted. A slot is held until its run has ended.

create table slots (
    tenant text not null,
    run_id text not null,
    workflow text not null,
    most integer check (most is null or most > 0),
    priority integer not null,
    asked_at integer not null,
    granted_at integer,
    primary key (tenant, run_id)
) strict;

create index slots_waiting on slots (tenant, workflow, priority desc, asked_at, run_id) where granted_at is null;
create index slots_granted on slots (tenant, workflow, run_id) where granted_at is not null;

create trigger slot_is_granted_once before update on slots
when old.granted_at is not null or new.granted_at is null
begin
    select raise(abort, 'a slot is granted to a run once');
end;

create trigger unfinished_run_keeps_its_slot before delete on slots
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the slot of a finished run can be deleted');
end;
