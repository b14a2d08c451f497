"""Reads models from disk: checks a file against its own header, then maps its weights."""
