"""Messages by run and by business key, the mailbox, and inbound webhooks."""
