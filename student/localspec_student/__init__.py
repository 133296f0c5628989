"""Trains a drafting head (EAGLE-3) for a target, with the target itself as the teacher."""
