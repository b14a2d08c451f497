"""`octavo bench`: a load generator for Octavo and other servers with OpenAI's streaming API."""
