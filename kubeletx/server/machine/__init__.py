"""Virtual machines on the admin socket: verbs, routes and views."""
