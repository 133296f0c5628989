"""Files become passages that are found by their words, and cited."""

USUAL_TOKENS, LEAST_TOKENS = 1500, 600
"""What the passages of one question may take of the context; the least holds one passage."""
