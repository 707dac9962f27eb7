"""Losses as pure functions of log-probabilities; arguments in the order (target, student)."""
