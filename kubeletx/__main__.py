"""``python -m kubeletx``: the same as the program ``kubeletx``."""

from kubeletx.cli import start

if __name__ == "__main__":
    start()
