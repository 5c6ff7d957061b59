"""How close two computations of the same thing must be, and where the figures were measured.

Measured on x86-64 (AVX-512, float32, one thread) with torch 2.13.0 and transformers 4.57.6. A bound is a few times the
largest difference seen, so that another machine's order of summation fits in and a wrong formula does not.
"""

PARITY = 1e-5
"""Hidden states, logits and gradients against transformers on tiny models, relative to the largest value if above 1."""

REAL_WEIGHTS = 1e-5
"""Hidden states and logits of real models against transformers with the same kind of attention. Seen: 0."""

REFERENCE = 1e-4
"""Logits stored as JSON by transformers 5.24. Seen: 3.8e-6 on logits up to 6."""

BF16_STORAGE = 0.15
"""Logits of weights rounded to bfloat16 against those of the float32 weights; the cases' own bound. Seen: 0.069."""

FP16_STORAGE = 0.02
"""The same for float16. Seen: 0.010."""

PATHS = 1e-5
"""Plain against fused attention."""

INVARIANCE = 1e-5
"""The same text with other padding, or beside other texts."""

HALF = 1e-2
"""Attention in bfloat16 or float16 against float32, with scores from -50 to 50 and values of size 1."""
