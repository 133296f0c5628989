"""A conversation becomes events: templates, detokenizing, stop strings. Receives protocols, never llama.cpp."""
