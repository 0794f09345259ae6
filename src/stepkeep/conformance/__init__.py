"""The judge: reads exported records and decides whether each transition was legal."""
