"""Definitions as people write them, in YAML, JSON or Python, and their translation to the canonical definition."""
