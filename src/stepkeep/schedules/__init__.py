"""Moments of schedules: cron expressions in time zones, and intervals. Pure: the caller gives every instant."""
