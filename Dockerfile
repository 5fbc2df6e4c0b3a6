# An image that audits hosted models, GGUF files excepted, and local ones on the CPU:
#   docker build -t bias-audit . && docker run --rm -v "$PWD:/work" bias-audit run examples/fake.py
FROM python:3.11-slim

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY audit /src/audit
COPY backends /src/backends
COPY suites /src/suites
# torch first and pinned: without its pin the CUDA libraries come too.
RUN pip install --no-cache-dir --constraint /src/constraints.txt --only-binary :all: torch \
 && pip install --no-cache-dir --constraint /src/constraints.txt --only-binary :all: "/src[hf,frames]"

RUN useradd --create-home auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["audit"]
CMD ["--help"]
