"""What people and programs read of runs: views, results, search, and why something does not move."""
