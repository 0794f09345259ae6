"""`stepkeep simulate`: walks every failure path of a definition through the kernel, without a database."""
