"""Commands that are killed at random moments until one run comes through."""
