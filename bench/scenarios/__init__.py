"""What is measured, one kind of use per file. A scenario takes a running server and gives figures by their name."""
