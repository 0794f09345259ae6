-- Add queues that are not there yet.
insert into queues (tenant, spec) values (?, ?)
on conflict (tenant, spec) do nothing
