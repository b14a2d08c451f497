"""Grammars that outputs must follow: compiled off the loop, matched token by token."""
