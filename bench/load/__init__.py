"""Load generators, each a process of its own: `wrk` where it is installed, else sockets on an event loop."""
