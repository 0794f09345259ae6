"""People and what they ask for: decisions, users, keys, sessions, policies, quotas, the audit log."""
