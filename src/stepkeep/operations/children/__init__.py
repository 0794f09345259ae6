"""Child runs: started, cancelled, reported to the parent, rolled back."""
