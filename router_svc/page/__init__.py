"""The web page of the router: a playground and a live view, made of static files (docs/page.md)."""
