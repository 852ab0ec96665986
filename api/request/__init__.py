"""Reading a request: body, upload, caller, page, patience."""
