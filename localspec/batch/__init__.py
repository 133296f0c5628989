"""batch: a file of prompts becomes a file of answers, each exactly once. Knows no models, and no terminal."""
