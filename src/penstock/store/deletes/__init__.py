"""Messages that were taken away, why, and what is kept of that when their blocks go."""
