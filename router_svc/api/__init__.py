"""The public API's handlers: public messages in, the generation pipeline, public messages out."""
