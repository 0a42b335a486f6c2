"""A read-only web page about one node: a process of its own, a client of the admin socket of kubeletx."""
