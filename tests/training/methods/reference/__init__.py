"""Every method's full loss, written in float64 from its equations; nothing here imports the product.

A row is one response with the logits of every view at the positions that predict its ids. Settings are plain numbers.
Gradients come from autograd through these plain formulas.
"""
