"""What the index finds, how fast, and what quoting costs: a hundred questions over texts that the system carries."""
