"""Events on their way out: sinks, cursors, webhooks, and the events that dialects name."""
