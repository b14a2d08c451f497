"""Who may have how much: limits of tenants, and how many requests are served at once."""
