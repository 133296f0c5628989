"""Looks a machine over: facts, and which of them are broken. Changes nothing and tells no secret."""
