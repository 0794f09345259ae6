"""The only place where user code runs: claim, lease, execute, classify, report."""
