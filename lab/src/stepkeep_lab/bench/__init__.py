"""What it costs, measured: the same work on both databases, beside peers and beside the bound: `stepkeep bench`."""
