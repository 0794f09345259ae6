-- Sinks may take transitions of workers: 16 among what they take.

alter table sinks drop constraint sinks_takes_check;
alter table sinks add constraint sinks_takes_check check (takes between 1 and 31);

comment on column sinks.takes is 'What it takes, added up: 1 emitted, 2 dialect, 4 transitions, 8 endings, 16 workers';
comment on column deliveries.run_id is 'The run it belongs to: runs.id; for a worker, an id made of its name';
comment on column deliveries.target is 'JSON: where to, if the run itself says so; or the worker whose transitions they are';
