"""Launches the page: `python app.py`.

CUBE3D_MODEL names the model (default: the bundled "mini"), CUBE3D_RESULTS the folder for results; gradio itself reads
GRADIO_SERVER_NAME and GRADIO_SERVER_PORT (default: 127.0.0.1 and the first free port from 7860).
"""

import os

from cube3d import Pipeline
from cube3d.page import serve
from cube3d.store import Store, default_root

if __name__ == "__main__":
    pipeline = Pipeline.load(os.environ.get("CUBE3D_MODEL", "mini"))
    serve(pipeline, Store(os.environ.get("CUBE3D_RESULTS") or default_root()))
