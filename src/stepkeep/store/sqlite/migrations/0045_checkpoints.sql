-- What handlers record while they run, one row each. Until now it stood in the note of the step.
create table checkpoints (
    tenant text not null,
    run_id text not null,
    no integer not null check (no >= 0),
    name text not null,
    fence integer not null check (fence > 0),
    seq integer not null,
    at integer not null,
    value blob not null,
    primary key (tenant, run_id, no, name)
) strict;

create unique index checkpoints_in_order on checkpoints (tenant, run_id, no, seq, name);

create trigger checkpoint_never_changes before update on checkpoints
begin
    select raise(abort, 'a checkpoint never changes');
end;

create trigger unfinished_run_keeps_its_checkpoints before delete on checkpoints
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the checkpoints of a finished run can be deleted');
end;

-- Of those in notes, the place in the note stands for the journal entry. The notes keep their copies: a finished step
-- never changes, and nothing reads them.
insert into checkpoints (tenant, run_id, no, name, fence, seq, at, value)
select
    s.tenant, s.run_id, s.no, c.value ->> 'name', c.value ->> 'fence', c.key + 1, c.value ->> 'at',
    cast(c.value ->> 'value' as blob)
from steps s, json_each(s.note, '$.checkpoints') c
where s.note like '%"checkpoints":%';
