"""The runtime under the generated HTTP adapter: bodies in, JSON and server-sent events out."""
