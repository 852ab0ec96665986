"""The routes, one file per family: they read a request, call one function, and render."""
