"""Runs user code: claim, lease, execute, classify, report. It changes runs through operations only."""
