"""What training and serving agree on, in code that needs neither torch nor a server.

Tokenisation, label order, truncation, the softmax and the file formats must be the same code on both sides
of an export; this room is that code. It imports numpy and tokenizers, and nothing else of the project.
"""
