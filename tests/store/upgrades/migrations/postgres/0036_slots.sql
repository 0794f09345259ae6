-- Execution slots: runs under a limit on running runs, waiting or granted. A slot is held until its run has ended.

create table slots (
    tenant text collate "C" not null,
    run_id uuid not null,
    workflow text collate "C" not null,
    most integer check (most is null or most > 0),
    priority integer not null,
    asked_at bigint not null,
    granted_at bigint,
    primary key (tenant, run_id)
);

create index slots_waiting on slots (tenant, workflow, priority desc, asked_at, run_id) where granted_at is null;
create index slots_granted on slots (tenant, workflow, run_id) where granted_at is not null;

create trigger slot_is_granted_once after update on slots for each row
    when (old.granted_at is not null or new.granted_at is null)
    execute function stepkeep_refuse('a slot is granted to a run once');

create trigger unfinished_run_keeps_its_slot after delete on slots
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the slot of a finished run can be deleted');

comment on table slots is 'Runs under a limit on running runs: those that wait for an execution slot, and those that hold one';
comment on column slots.tenant is 'Whose run it is';
comment on column slots.run_id is 'The run';
comment on column slots.workflow is 'Its workflow';
comment on column slots.most is 'How many runs of the workflow may hold a slot, by the definition of the run; null: no limit';
comment on column slots.priority is 'The priority of the run: higher ones are granted a slot first';
comment on column slots.asked_at is 'When the run was to start (microseconds since 1970): the order of arrival';
comment on column slots.granted_at is 'When it was granted a slot; null while it waits';
