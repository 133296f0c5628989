"""Policy: which drafter, and how far, by what passes cost and what may be lost."""
