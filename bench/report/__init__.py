"""From measured values to what people read: a table, a JSON file, a page of the documentation, a plot."""
