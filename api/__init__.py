"""The web tier: HTTP in, HTTP out. It starts without torch and never computes a vector."""
