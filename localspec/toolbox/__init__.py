"""Functions that a model may call: what they are, what they would do, and how they are carried out."""
