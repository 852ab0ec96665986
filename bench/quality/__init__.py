"""What the vectors are good for: data sets, metrics, and what others have published."""
