"""Exhaustive exploration: of small runs through the production `decide`, and of what dialects show (refinement)."""
