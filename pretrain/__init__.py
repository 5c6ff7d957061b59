"""Corpus to checkpoint: a read-only token store, views of it as training samples, and the training loop.

``prepare`` turns files of text into one store folder. Every input format, masking style and objective of the BERT,
RoBERTa and ALBERT papers is a view of that store, computed when a batch is loaded; nothing is written twice.
"""
