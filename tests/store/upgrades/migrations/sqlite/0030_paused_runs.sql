-- A run may be paused. The table is written anew, because its check changes; its indexes and triggers go with the old one.
--
-- With the setting, the views and triggers that read `runs` keep that name while no such table exists.

pragma legacy_alter_table = on;

create table runs_with_paused (
    tenant        text not null,
    id            text not null,
    definition_id integer not null,
    state         text not null,
    priority      integer not null,
    seq           integer not null check (seq >= 0),
    head          blob not null,
    open          integer not null check (open >= 0),
    moving        integer not null check (moving >= 0),
    leased        integer not null check (leased >= 0),
    failed        integer not null check (failed >= 0),
    undoing       integer not null check (undoing >= 0),
    inbox         integer not null check (inbox >= 0),
    cause         text,
    policy        text,
    category      text,
    error         text,
    rollback      text not null,
    due_at        integer,
    started_at    integer,
    ended_at      integer,
    business_key  text,
    moved_at      integer not null,
    primary key (tenant, id),
    constraint run_state check (case state
        when 'idle'         then ended_at is null
        when 'queued'       then ended_at is null
        when 'running'      then ended_at is null
        when 'blocked'      then ended_at is null
        when 'paused'       then ended_at is null
        when 'validating'   then ended_at is null
        when 'stopping'     then ended_at is null and cause is not null
        when 'compensating' then ended_at is null and cause is not null
        when 'succeeded'    then ended_at is not null and due_at is null
        when 'failed'       then ended_at is not null and due_at is null and cause is not null
        when 'cancelled'    then ended_at is not null and due_at is null and cause is not null
        when 'rolled_back'  then ended_at is not null and due_at is null and cause is not null
        else false end),
    constraint finished_run_is_at_rest check (
        ended_at is null or (open = 0 and moving = 0 and leased = 0 and undoing = 0)),
    constraint leased_steps_are_moving check (leased <= moving),
    constraint run_cause check (cause is null or cause in ('failure', 'timeout', 'cancel')),
    constraint run_policy check (policy is null or policy in ('abort', 'skip', 'continue', 'compensate')),
    constraint run_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint run_rollback check (rollback = 'none' or rollback = 'complete' or rollback = 'partial')
) strict, without rowid;

insert into runs_with_paused (
    tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
    cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at)
select
    tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
    cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at
from runs;

drop table runs;

alter table runs_with_paused rename to runs;

pragma legacy_alter_table = off;

create index runs_due on runs (due_at) where due_at is not null;
create index runs_live on runs (tenant, id) where ended_at is null;
create index runs_troubled on runs (tenant, id) where cause is not null;

create trigger finished_run_never_changes before update on runs
when old.ended_at is not null or new.seq < old.seq
begin
    select raise(abort, 'a finished run never changes, and the journal of a run only grows');
end;

create trigger unfinished_run_stays before delete on runs
when old.ended_at is null
begin
    select raise(abort, 'only a finished run can be deleted');
end;

create trigger run_starts_before_it_runs before update of state on runs
when new.state <> old.state and (
    new.seq = old.seq or (old.state = 'idle' and new.started_at is null and new.state <> 'cancelled'))
begin
    select raise(abort, 'a run changes its state with a journal entry, and leaves idle when it is started');
end;
