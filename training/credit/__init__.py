"""How much each rollout and token counts: rewards, gates, selection, modulation, alignment, preference.

Pure functions of tensors and numbers; none keeps a gradient.
"""
