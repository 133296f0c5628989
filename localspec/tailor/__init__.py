"""Making the draft model that pays on this machine, out of models that are here."""
