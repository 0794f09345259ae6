-- Jobs may pause and resume runs.

alter table jobs drop constraint jobs_action_check;
alter table jobs add constraint jobs_action_check check (action in ('cancel', 'rerun', 'pause', 'resume'));

comment on table jobs is 'Jobs that act on many runs: cancel, rerun, pause or resume; workers carry them out';
comment on column jobs.action is 'What is done to each run: cancel, rerun, pause or resume';
