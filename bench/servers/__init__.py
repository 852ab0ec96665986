"""What is measured: the whole local stack, parts of it, the usual designs, somebody else's server, the bare encoder."""
