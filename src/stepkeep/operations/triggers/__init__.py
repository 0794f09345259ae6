"""Triggers: what starts runs by itself. `plan` decides, `firing` writes, `sweep` finds what is due, `manage` adds,
pauses and removes, `events` matches events and endings, `views` shows."""
