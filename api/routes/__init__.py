"""The routes, one file per family. They read a request, call one function, and render; they raise and never format."""
