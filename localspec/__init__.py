"""localspec: a small model guesses ahead, a large one checks, and the text stays the same."""
