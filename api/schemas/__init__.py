"""What the API takes and answers, as pydantic models by resource: answered and documented by the same model."""
