"""A checkpoint and labelled data become a better checkpoint; also evaluation and prediction."""
