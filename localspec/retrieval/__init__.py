"""Files become passages that are found by their words, and by vectors."""
