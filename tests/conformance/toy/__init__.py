"""A small made-up dialect: parcels and their legs. Everything that finds, loads or judges dialects is tried on it."""
