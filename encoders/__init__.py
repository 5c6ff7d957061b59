"""BERT, RoBERTa and ALBERT in native PyTorch: modules, heads, weight renaming, the checkpoint folder."""
