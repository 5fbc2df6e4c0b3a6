# An image that audits hosted models, GGUF files excepted, and local ones on the CPU:
#   docker build -t bias-audit .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" bias-audit run examples/fake.py
FROM python:3.11-slim

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY audit /src/audit
COPY backends /src/backends
COPY suites /src/suites
COPY examples /src/examples
# torch first, from PyTorch's index of builds for the CPU: PyPI's brings 3 GB of CUDA.
RUN pip install --no-cache-dir --constraint /src/constraints.txt --only-binary :all: --no-deps --retries 1 \
    --extra-index-url https://download.pytorch.org/whl/cpu torch \
 && pip install --no-cache-dir --constraint /src/constraints.txt --only-binary :all: "/src[hf,frames]"

# --user may name someone whom the image does not know, and who has no home: caches go where everyone may write.
ENV XDG_CACHE_HOME=/tmp/cache XDG_STATE_HOME=/tmp/state HF_HOME=/tmp/huggingface
RUN useradd --create-home auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["audit"]
CMD ["--help"]
