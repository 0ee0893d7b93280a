# CPU:  docker build -t cube3d . && docker run --rm -p 7860:7860 -v cube3d:/home/user/.cache cube3d
# CUDA: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 -t cube3d-cuda .
#       docker run --rm --gpus all -p 7860:7860 -v cube3d:/home/user/.cache -e CUBE3D_MODEL=Roblox/cube3d-v0.5 cube3d-cuda
FROM python:3.12-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# On CUDA, kernels are compiled at start-up, which takes a C compiler.
# hadolint ignore=DL3008
RUN case "$TORCH_INDEX" in */cpu) exit 0 ;; esac \
    && apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 user \
    && install --directory --owner user --group user /home/user/app /home/user/.cache
USER 1000
ENV HOME=/home/user \
    PATH=/home/user/.local/bin:$PATH \
    XDG_CACHE_HOME=/home/user/.cache \
    HF_HOME=/home/user/.cache/huggingface \
    GRADIO_TEMP_DIR=/home/user/.cache/gradio \
    TORCHINDUCTOR_CACHE_DIR=/home/user/.cache/torchinductor \
    TRITON_CACHE_DIR=/home/user/.cache/triton \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    PYTHONUNBUFFERED=1
WORKDIR /home/user/app

COPY --chown=1000 requirements.txt .
RUN grep '^torch' requirements.txt > /tmp/torch.txt \
    && pip install --no-cache-dir --user --index-url "$TORCH_INDEX" --requirement /tmp/torch.txt \
    && pip install --no-cache-dir --user --requirement requirements.txt \
    && rm /tmp/torch.txt
COPY --chown=1000 . .

EXPOSE 7860
# The released models are several gigabytes to fetch at the first start.
HEALTHCHECK --interval=30s --timeout=5s --start-period=15m \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
STOPSIGNAL SIGINT
CMD ["python", "app.py"]
