"""Workflows and handlers written in Python."""
