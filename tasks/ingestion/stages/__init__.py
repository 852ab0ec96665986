"""The stages of an ingestion, a module each. They change nothing but objects of their own: what they return does."""
