"""The five specifications as dialects: each brings its own format, its own machines and its own words for a run."""
