"""Everything in the router that is text: tokeniser, detokeniser, stop strings, chat template."""
