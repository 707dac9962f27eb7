"""What teacher and student think of every token of an answer, stored for people to look at.

pieces      token ids as pieces of text
reading     per-token values of two views at one response
teaching    which term of a method has the teacher, and what keeps it from looking
building    responses in, traces out
recording   traces into the run's folder
checkpoint  traces of an evaluation's answers

A trace never enters training or a score: it reads weights that are there, and draws nothing that others draw from.
"""
