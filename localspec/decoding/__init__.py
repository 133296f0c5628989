"""Pure algorithms: sampling, drafting, verification. Knows no text, no files, no clock of its own."""
