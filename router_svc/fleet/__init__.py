"""Many engines behind one router: who is there, who gets a request, and what if one is lost."""
