"""The people of a decision: gates, votes, duties, and which person may act."""
