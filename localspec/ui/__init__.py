"""The chat: screens on Textual, and a plain line-based form. Knows the engine's client and the history, no models."""
