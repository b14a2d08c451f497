"""Memory before anything is loaded: what start-up plans with, and `octavo plan` for people."""
