"""A checkpoint becomes a verified bundle."""
