"""Where documents come from: uploaded files, inline documents, folders and URLs, records inside of files."""
