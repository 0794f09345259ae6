"""Texts from outside as plain data with positions: YAML and JSON, strict and bounded."""
