"""The `linear` dialect: seed 002's linear workflows, instance and step states, and the rows of its tables."""
