"""Property tests of this room run on busy machines: no deadline, and half of the usual number of examples."""

from hypothesis import settings

settings.register_profile("pretrain", deadline=None, max_examples=50)
settings.load_profile("pretrain")
