"""Structured output: what an answer has to look like, as a GBNF grammar. Pure: knows no tokens and no model."""
