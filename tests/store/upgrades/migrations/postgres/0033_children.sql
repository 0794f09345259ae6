-- Child runs: which step asked for which run, how far that is, and what is left to do about it.
--
-- A parent asks for a child, or calls it back, in the transaction of its own decision. A child starts in the transaction
-- that finds its row still requested. Its end is written here in its own transaction, and told to the parent later.

create table children (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation > 0),
    child_id uuid not null,
    workflow text not null,
    version integer not null check (version > 0),
    mode text not null,
    state text not null,
    requested_at bigint not null,
    started_at bigint,
    recall text,
    recalled_at bigint,
    ended_at bigint,
    outcome text,
    category text,
    error text,
    todo text,
    todo_at bigint,
    primary key (tenant, run_id, no, activation),
    constraint child_mode check (mode in ('awaited', 'detached')),
    constraint child_state check (state in ('requested', 'started', 'withdrawn', 'refused', 'ended')),
    constraint child_recall check (
        (recall is null or recall in ('cancel', 'undo')) and (recall is null) = (recalled_at is null)),
    constraint child_end check ((state = 'ended') = (outcome is not null)),
    constraint child_outcome check (outcome is null or outcome in ('succeeded', 'failed', 'cancelled', 'rolled_back')),
    constraint child_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint child_todo check (
        (todo is null) = (todo_at is null)
        and case todo when 'start' then state = 'requested' when 'cancel' then state = 'started'
            when 'tell' then state in ('withdrawn', 'refused', 'ended') else todo is null end)
);

create unique index children_child on children (tenant, child_id);
create index children_todo on children (todo_at) where todo is not null;

create trigger unfinished_run_keeps_its_children after delete on children
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the links to children of a finished run can be deleted');

comment on table children is 'Child runs: which step asked for which run, and what is left to do about it';
comment on column children.tenant is 'Whose run it is';
comment on column children.run_id is 'The parent';
comment on column children.no is 'The number of the step in the plan of the parent';
comment on column children.activation is 'The sequence of the journal entry of the parent that asked for the child';
comment on column children.child_id is 'The run of the child';
comment on column children.workflow is 'The workflow of the child';
comment on column children.version is 'The version of the workflow, pinned when the parent was published';
comment on column children.mode is 'awaited or detached';
comment on column children.state is 'requested, started, withdrawn, refused or ended';
comment on column children.requested_at is 'When the parent asked for it';
comment on column children.started_at is 'When its run was created';
comment on column children.recall is 'cancel or undo, if the parent called it back';
comment on column children.recalled_at is 'When the parent called it back';
comment on column children.ended_at is 'When it ended';
comment on column children.outcome is 'The state in which it ended';
comment on column children.category is 'The category of its failure';
comment on column children.error is 'Its error';
comment on column children.todo is 'What is left to do: start, cancel or tell';
comment on column children.todo_at is 'When that is to be done';
