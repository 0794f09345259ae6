"""Runs user code: claim, lease, execute, classify, report. No other package runs user code."""
