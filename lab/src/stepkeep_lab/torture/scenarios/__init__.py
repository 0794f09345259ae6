"""One function per fault: it strikes at a stage for a while and leaves the reckoning to it."""
