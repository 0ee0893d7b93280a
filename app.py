"""Launches the page: `python app.py` is `python -m cube3d serve`, with the same options and environment variables."""

import sys

from cube3d.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
