"""One module a page; each has ``page()``, which draws it."""
