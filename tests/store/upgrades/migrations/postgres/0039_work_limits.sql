-- The queues and handlers that a key with the scope work is limited to.

alter table api_keys add column queues text;
alter table api_keys add column handlers text;

create trigger key_keeps_its_limits after update on api_keys for each row
    when (old.queues is distinct from new.queues or old.handlers is distinct from new.handlers)
    execute function stepkeep_refuse('a key keeps the queues and handlers that it is limited to: make another one');

comment on column api_keys.queues is 'The names of the queues that it may work on, as JSON; null: any';
comment on column api_keys.handlers is 'The names of the handlers that it may work on, as JSON; null: any';
