"""What runs inside the sandbox when tests with assertions judge an answer: two interpreters and a pipe.

The modules are read as text by ``evaluation.grading.assert_runs`` and run there on the sandbox's Python (3.9 or later,
standard library alone); nothing else imports them. The first process keeps the tests and the secret word. It forks
before it reads them, and the child runs the answer: names of the answer are handles in the tests, calls go through a
pipe, and plain values cross by value. An answer can patch its own builtins, return objects that equal everything, walk
its frames or read its memory, and none of it reaches what judges it.
"""
