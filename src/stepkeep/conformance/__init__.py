"""The judge: decides from exported records alone whether each transition was legal. It imports no kernel."""
