"""``python -m flows.cli``: the same as ``stillroom``."""

from flows.cli.entry import main

if __name__ == "__main__":
    main()
