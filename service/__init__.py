"""A bundle becomes an HTTP service. Nothing here imports torch."""
