-- List the names of tenants that have settings, as a role that sees no other tenant's settings.
select stepkeep_tenant_names($1)
