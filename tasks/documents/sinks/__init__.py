"""The places to which vectors are loaded, with receipts of the documents in them."""
