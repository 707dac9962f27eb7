"""Time and memory of the distillation head: ``python -m training.bench [--json PATH] [--quick]``.

N response tokens, hidden size H, vocabulary V, student and teacher through one frozen head. Paths:

products    the three bare matrix products (student, teacher, gradient of the input), in chunks: the floor
full        logits of all tokens at once, loss and gradient by autograd
chunked     ``training.objective``: gradient computed in the forward
checkpoint  chunks of plain autograd under activation checkpointing: the logits are computed twice
trl         the same loss by TRL's own function, on full logits as its trainers call it (where TRL is installed)
liger       Liger's chunked loss without its Triton kernels (where it is installed; full-vocabulary KL and JSD only)

Every path of every size and loss runs in a process of its own, so that its peak memory is its own. The ratios are the
result: seconds depend on what else the machine does.
"""
