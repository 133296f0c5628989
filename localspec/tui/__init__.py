"""The chat: screens on Textual, and a plain form in lines. Uses the engine's client and the history, no models."""
