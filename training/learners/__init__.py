"""Whose weights learn and whose look: the learner port and its adapters."""
