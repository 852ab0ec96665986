"""Where vectors go, and the receipts of what has got there."""
