"""Deterministic simulation: virtual time, a seeded scheduler, a model database, faults, and the real engine on top."""
