"""Evidence packs: one archive per run that an auditor can check without this package, and signed heads of runs."""
