-- Shared budgets: what attempts cost is found by tenant and time. A run may be pinned to a revision of the live policy.

create index attempts_cost on attempts (tenant, ended_at) where cost is not null;

alter table run_details add column policy_revision integer;

comment on column run_details.policy_revision is 'The revision of the live policy that the run is pinned to';
