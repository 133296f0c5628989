"""Gates between confirmed text and its readers: rules match what must not be shown, as the text streams. Knows no model and no screen."""
