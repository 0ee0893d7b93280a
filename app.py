"""Launches the page: `python app.py`, which is `python -m cube3d serve` without options.

CUBE3D_MODEL names the model (default: the bundled "mini"), CUBE3D_RESULTS the folder for finished objects (default: the
user's cache), GRADIO_SERVER_NAME and GRADIO_SERVER_PORT the address (default: 127.0.0.1, first free port from 7860).
"""

import os
import sys

from cube3d.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["serve", "--model", os.environ.get("CUBE3D_MODEL", "mini")]))
