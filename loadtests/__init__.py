"""A running service becomes numbers, plots and an exit code."""
