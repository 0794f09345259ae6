"""Exhaustive exploration of small runs through the production `decide`: every state, every promise, every way out."""
