# An image of topo: `docker build -t topo .`, or with another base and other extras,
# `docker build --build-arg BASE=debian:13-slim --build-arg EXTRAS=spark,ui,kafka -t topo .`
# A topology's own image begins with it: FROM topo, COPY wordcount.py /app/, CMD ["run", "wordcount.py"].
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG EXTRAS=spark,ui
SHELL ["/bin/sh", "-eux", "-c"]
# tini passes signals on, and ends what a dead process leaves. Java comes with the extra "spark".
# hadolint ignore=DL3008
RUN command -v tini \
    || { apt-get update && apt-get install -y --no-install-recommends tini \
         && rm -rf /var/lib/apt/lists/*; }
# The user is numbered, so that Kubernetes sees that it is not root.
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/topo topo \
    && install -d -o topo -g topo -m 700 /state \
    && install -d /app /opt/spark/work-dir
ENV PATH=/opt/topo/bin:$PATH PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 \
    TOPO_HOME=/var/lib/topo TOPO_CACHE=""
RUN python3 -m venv /opt/topo
COPY pyproject.toml README.md LICENSE /src/
COPY topo /src/topo
RUN pip install "/src[${EXTRAS}]" && rm -r /src && topo --version
COPY --chmod=755 topo/cli/exports/entrypoint.sh /opt/entrypoint.sh
USER 10001
WORKDIR /app
VOLUME /state
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["--help"]
