"""Model families: each turns a configuration and its weight names into a `DecoderSpec`."""
