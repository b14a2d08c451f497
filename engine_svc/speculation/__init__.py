"""Guesses at the next tokens, for steps that verify them: plain Python, as scheduling."""
