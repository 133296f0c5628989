"""What a user has set: flags over environment over project file over user file over defaults."""
