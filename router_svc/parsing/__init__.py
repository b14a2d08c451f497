"""What a model's text means: reasoning, tool calls and content, told apart as the text comes."""
