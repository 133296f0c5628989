"""Where localspec keeps things, and how: files that are private, replaced as a whole, and read up to a bound."""
