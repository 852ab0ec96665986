"""Reading a request: body, upload, caller, page, preferences."""
