"""What models exist, where their files are, and what fits what. Knows no llama.cpp."""
