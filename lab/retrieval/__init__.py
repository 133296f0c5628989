"""What the index finds: a hundred questions over texts that the system carries."""
