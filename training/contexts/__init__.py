"""What a view sees beside the problem: the values (``specs``) and how each is built for a batch (``build``)."""
