-- Jobs may migrate runs to another version of their workflow.

alter table jobs drop constraint jobs_action_check;
alter table jobs add constraint jobs_action_check check (action in ('cancel', 'rerun', 'pause', 'resume', 'migrate'));

comment on table jobs is 'Jobs that act on many runs: cancel, rerun, pause, resume or migrate; workers carry them out';
comment on column jobs.action is 'What is done to each run: cancel, rerun, pause, resume or migrate';
