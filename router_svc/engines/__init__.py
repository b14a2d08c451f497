"""One engine as the router reaches it: its connection, its messages, the events of a request."""
