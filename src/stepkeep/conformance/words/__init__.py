"""Logs in a dialect's words: read, replayed, judged by what they show, and compared with their canonical log."""
