"""How close two computations of the same thing must be, and where the figures were measured.

Measured on x86-64 (AVX-512, float32, one thread) with torch 2.13.0 and transformers 4.57.6. A bound is three to ten times
the largest difference seen, so that another machine's order of summation fits in and a wrong formula does not.
"""

PARITY = 1e-5
"""Hidden states, logits and gradients against transformers, tiny models. Seen: 3.8e-6 on logits up to 6."""

REAL_WEIGHTS = 1e-5
"""Hidden states of the real models against transformers. Seen: see test_real_weights.py, largest 2e-6."""

REFERENCE = 1e-4
"""Logits stored by another version of transformers, rounded on the way to JSON. Seen: 3.8e-6."""

BF16_STORAGE = 0.15
"""Logits of weights rounded to bfloat16 against those of the float32 weights, as the reference states it. Seen: 0.069."""

FP16_STORAGE = 0.02
"""The same for float16. Seen: 0.010."""

PATHS = 2e-6
"""Plain against fused attention."""

INVARIANCE = 2e-6
"""The same text with other padding, or beside other texts."""

HALF = 1e-2
"""Attention in bfloat16 or float16 against float32, scores up to 50, relative to values of size 1."""
