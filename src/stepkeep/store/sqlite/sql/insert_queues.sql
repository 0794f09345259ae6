-- Insert missing queues.
insert into queues (tenant, spec) values (?, ?)
on conflict (tenant, spec) do nothing
