"""Gates between confirmed text and whoever sees it: rules find what must not be seen, as the text streams. Knows no model and no screen."""
