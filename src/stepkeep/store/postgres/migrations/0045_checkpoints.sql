-- What handlers record while they run, one row each. Until now it stood in the note of the step.
create table checkpoints (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    name text collate "C" not null,
    fence integer not null check (fence > 0),
    seq bigint not null,
    at bigint not null,
    value bytea not null,
    primary key (tenant, run_id, no, name)
);

create unique index checkpoints_in_order on checkpoints (tenant, run_id, no, seq, name);

create trigger checkpoint_never_changes after update on checkpoints for each row
    execute function stepkeep_refuse('a checkpoint never changes');

create trigger unfinished_run_keeps_its_checkpoints after delete on checkpoints
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the checkpoints of a finished run can be deleted');

comment on table checkpoints is 'What handlers recorded while they ran, for later attempts of their steps';
comment on column checkpoints.tenant is 'Whose run it is';
comment on column checkpoints.run_id is 'The run';
comment on column checkpoints.no is 'The number of the step';
comment on column checkpoints.name is 'The name, once in a step';
comment on column checkpoints.fence is 'The fence of the claim that recorded it';
comment on column checkpoints.seq is 'The journal entry that recorded it; of those from before this table, their order';
comment on column checkpoints.at is 'When it was recorded (microseconds since 1970)';
comment on column checkpoints.value is 'JSON, or a reference to a large payload';

-- Of those in notes, the place in the note stands for the journal entry. The notes keep their copies: a finished step
-- never changes, and nothing reads them.
insert into checkpoints (tenant, run_id, no, name, fence, seq, at, value)
select
    s.tenant, s.run_id, s.no, c.value ->> 'name', (c.value ->> 'fence')::integer, c.place, (c.value ->> 'at')::bigint,
    convert_to(c.value ->> 'value', 'UTF8')
from steps as s
cross join lateral json_array_elements(s.note::json -> 'checkpoints') with ordinality as c (value, place)
where s.note like '%"checkpoints":%';
