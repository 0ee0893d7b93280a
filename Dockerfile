# CPU image by default: docker build -t cube3d .
# CUDA: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 -t cube3d-cuda .
#       docker run --gpus all -p 7860:7860 -e CUBE3D_MODEL=Roblox/cube3d-v0.5 cube3d-cuda
FROM python:3.12-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN useradd --create-home --uid 1000 user
USER user
ENV HOME=/home/user \
    PATH=/home/user/.local/bin:$PATH \
    HF_HOME=/home/user/.cache/huggingface \
    GRADIO_TEMP_DIR=/home/user/.cache/gradio \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    PYTHONUNBUFFERED=1
WORKDIR /home/user/app

COPY --chown=user requirements.txt .
RUN pip install --no-cache-dir --user --index-url "$TORCH_INDEX" "$(grep '^torch' requirements.txt)" \
    && pip install --no-cache-dir --user -r requirements.txt
COPY --chown=user . .

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
CMD ["python", "app.py"]
