-- Delete business keys.
delete from business_keys
where tenant = ?1 and key = ?2
