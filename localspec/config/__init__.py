"""What a user has set: flags over environment over the user's file over defaults."""
