-- Ends of runs are noted for triggers by the transaction that ends a run; old firings are deleted by retention.

create index triggers_ended on triggers (tenant, topic, name) where kind = 'ended' and removed_at is null;
create index firings_awaiting on firings (tenant, source) where state = 'awaiting';
create index firings_made on firings (tenant, made_at) where watched = 0;
