"""Expressions over data: CEL, its scope and its bounds, templates, conditions and policies; and schemas."""
