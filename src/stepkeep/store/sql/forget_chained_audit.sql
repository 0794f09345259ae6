-- Delete the entries of a tenant's audit log that are before the beginning of its chain.
delete from audit
where tenant = $1 and seq <= (select forgotten from audit_heads where tenant = $1)
returning 1
