"""Exhaustive exploration of small runs through the production `decide`: every state and every property."""
