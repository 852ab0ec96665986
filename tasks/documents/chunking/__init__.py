"""Text -> chunks that fit into the model's window, counted in the model's own tokens. Pure."""
