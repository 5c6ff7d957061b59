"""Labelled files: rows, classes, and the figures of predictions. Training and the export gates share it."""
