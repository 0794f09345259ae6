-- Gates: one row for each opening, with what people were shown and how it ended; and one row for each decision.
--
-- They are the record, and what lists are made of. The kernel decides from the row of the step.

create table gates (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation >= 0),
    opened_at bigint not null,
    level integer not null check (level >= 0),
    due_at bigint,
    shown bytea not null,
    shown_digest text not null check (length(shown_digest) = 64),
    closed_at bigint,
    outcome text,
    primary key (tenant, run_id, no, activation),
    constraint gate_end check ((closed_at is null) = (outcome is null))
);

create index gates_open on gates (tenant, run_id, no) where closed_at is null;

create table decisions (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation >= 0),
    person text collate "C" not null,
    on_behalf_of text,
    level integer not null check (level >= 0),
    decision text not null check (decision in ('approved', 'rejected')),
    at bigint not null,
    comment text not null,
    evidence bytea,
    key_id text,
    delegation_id text,
    held_roles text not null,
    vouched_by text,
    shown_digest text,
    primary key (tenant, run_id, no, activation, person),
    constraint decision_for_another check (on_behalf_of is null or on_behalf_of <> person)
);

create trigger closed_gate_never_changes after update on gates for each row
    when (old.closed_at is not null or old.opened_at <> new.opened_at or old.shown <> new.shown
        or old.shown_digest <> new.shown_digest or new.level < old.level)
    execute function stepkeep_refuse('a gate keeps what it showed, and is closed once');

create trigger decision_never_changes after update on decisions for each row
    execute function stepkeep_refuse('a decision never changes');

create trigger unfinished_run_keeps_its_gates after delete on gates
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the gates of a finished run can be deleted');

create trigger unfinished_run_keeps_its_decisions after delete on decisions
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the decisions of a finished run can be deleted');

comment on table gates is 'Openings of gates: what people were shown, and how each ended';
comment on column gates.tenant is 'Whose run it is';
comment on column gates.run_id is 'The run';
comment on column gates.no is 'The number of the step in the plan of the run';
comment on column gates.activation is 'The sequence of the journal entry that opened the gate';
comment on column gates.opened_at is 'When it opened';
comment on column gates.level is 'How often it has escalated';
comment on column gates.due_at is 'Its deadline; null without one';
comment on column gates.shown is 'What people were shown, as JSON';
comment on column gates.shown_digest is 'The SHA-256 of what was shown, in hexadecimal';
comment on column gates.closed_at is 'When it closed; null while it is open';
comment on column gates.outcome is 'The trigger that closed it';
comment on table decisions is 'Decisions of people about gates; none ever changes';
comment on column decisions.tenant is 'Whose run it is';
comment on column decisions.run_id is 'The run';
comment on column decisions.no is 'The number of the step in the plan of the run';
comment on column decisions.activation is 'The sequence of the journal entry that opened the gate';
comment on column decisions.person is 'The person who decided';
comment on column decisions.on_behalf_of is 'The delegator; null where the person decided in their own name';
comment on column decisions.level is 'The level of the gate at that moment';
comment on column decisions.decision is 'approved or rejected';
comment on column decisions.at is 'When it was decided';
comment on column decisions.comment is 'The words of the person';
comment on column decisions.evidence is 'References to evidence, as a JSON list';
comment on column decisions.key_id is 'The API key that authenticated the caller';
comment on column decisions.delegation_id is 'The delegation that was used';
comment on column decisions.held_roles is 'The roles, groups or names by which the person might decide, as a JSON list';
comment on column decisions.vouched_by is 'The program that named the person';
comment on column decisions.shown_digest is 'The SHA-256 of what was shown, in hexadecimal';
