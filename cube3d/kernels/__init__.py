"""Triton kernels for one decoding step. The modules inside need Triton; importing this package does not.

Each kernel does what a function of step.py or sampling.py says in torch, for a few rows at a time.
"""
