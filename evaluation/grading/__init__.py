"""Graders: pure functions from an answer text to a verdict."""
