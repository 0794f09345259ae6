"""The corpus of forgeries: true logs, kinds of forgeries as data, and the share of each kind that the judge finds."""
