-- Adoptions: which run took the result of which step of an earlier run, and which of them undoes it.
--
-- A run that a live run adopted from is kept by retention. At most one run owns the undo of a step.

create table adoptions (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    source_run uuid not null,
    source_step text collate "C" not null,
    owned integer not null check (owned in (0, 1)),
    primary key (tenant, run_id, no),
    constraint adoption_of_another check (run_id <> source_run)
);

create unique index adoptions_one_owner on adoptions (tenant, source_run, source_step) where owned = 1;
create index adoptions_by_source on adoptions (tenant, source_run);
create index run_details_reruns on run_details (tenant, rerun_of, run_id) where rerun_of is not null;

create trigger adoption_keeps_its_source after update on adoptions for each row
    when (old.source_run <> new.source_run or old.source_step <> new.source_step or new.owned > old.owned)
    execute function stepkeep_refuse('an adoption keeps its source, and gives the undo away once');

create trigger unfinished_run_keeps_its_adoptions after delete on adoptions
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the adoptions of a finished run can be deleted');

comment on table adoptions is 'Finished steps that a run took from an earlier one';
comment on column adoptions.tenant is 'Whose runs they are';
comment on column adoptions.run_id is 'The run that took the result';
comment on column adoptions.no is 'The number of the step in the plan of that run';
comment on column adoptions.source_run is 'The run that executed the step';
comment on column adoptions.source_step is 'The name of the step there';
comment on column adoptions.owned is '1 if the run undoes the step in a rollback; at most one run does';
