# docker build --target router     -t octavo-router:0.1.0 .
# docker build --target engine-cpu -t octavo-engine-cpu:0.1.0 .
# docker build --target engine-gpu -t octavo-engine-gpu:0.1.0 .
#
# Each build can be pinned to the byte with --build-arg BASE=python:3.11.14-slim-bookworm@sha256:…
ARG BASE=python:3.11.14-slim-bookworm

# What is installed goes to /opt/octavo, which the images below copy. pip is the base image's own.
FROM ${BASE} AS build
RUN python -m venv --system-site-packages --without-pip /opt/octavo
WORKDIR /src
COPY constraints.txt ./
ENV PIP_PYTHON=/opt/octavo/bin/python \
    PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY protos/ protos/
COPY router_svc/ router_svc/
COPY engine_svc/ engine_svc/
COPY kernels/ kernels/

# No kernels: a router computes nothing. EXTRAS=[kubernetes] is for discovery by EndpointSlices.
FROM build AS build-router
ARG EXTRAS=""
RUN python -m pip install -C wheel.cmake=false ".${EXTRAS}" \
    && find /opt/octavo -type d -name tests -prune -exec rm -rf {} +

FROM build AS build-engine
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# An index with torch's CPU build makes the image for CPUs much smaller.
ARG PIP_EXTRA_INDEX_URL=""
RUN python -m pip install torch
RUN python -m pip install ".[engine]" \
    && test -f /opt/octavo/lib/python3.11/site-packages/kernels/cpu/liboctavo_cpu.so

# torch's CUDA build brings the Triton that it fits. An index that has the CPU build has neither.
FROM build-engine AS build-engine-gpu
RUN /opt/octavo/bin/python -c "import torch, triton; assert torch.version.cuda, torch.__version__"

# Nothing is written but in /tmp and /models, so that the root can be read-only.
FROM ${BASE} AS runtime
RUN groupadd --gid 10001 octavo \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin octavo \
    && install --directory --owner 10001 --group 10001 /models
ENV PATH=/opt/octavo/bin:$PATH \
    HOME=/tmp \
    OCTAVO_CACHE=/models \
    HF_HOME=/models/hub \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
ENTRYPOINT ["octavo"]

FROM runtime AS router
COPY --from=build-router /opt/octavo /opt/octavo
USER 10001:10001
EXPOSE 8000 50051
CMD ["router"]

# Also `octavo serve`: an engine's image holds the router too.
FROM runtime AS engine-cpu
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-engine /opt/octavo /opt/octavo
USER 10001:10001
EXPOSE 50061
CMD ["engine"]

# CUDA's libraries come with torch, the driver with the node; Triton compiles its launchers with gcc.
FROM runtime AS engine-gpu
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-engine-gpu /opt/octavo /opt/octavo
ENV TRITON_CACHE_DIR=/tmp/triton
USER 10001:10001
EXPOSE 50061
CMD ["engine"]
