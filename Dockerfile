# The gateway, and with the same image the simulated engines of the compose file's `cpu` profile.
# Two stages: what builds is not in what runs. It runs as its own user, on a read-only root.

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/forebay
COPY requirements/runtime.lock requirements/runtime.lock
RUN pip --python /opt/forebay/bin/python install --no-cache-dir --no-deps --requirement requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY tokenizer_pool tokenizer_pool
COPY scheduler scheduler
COPY backends backends
COPY bench bench
RUN pip --python /opt/forebay/bin/python install --no-cache-dir --no-deps . \
    && python -m compileall -q /opt/forebay/lib

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="Forebay" \
      org.opencontainers.image.description="A request-shaping gateway in front of vLLM" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --no-log-init --uid 10001 --create-home --home-dir /var/lib/forebay forebay
COPY --from=build /opt/forebay /opt/forebay
WORKDIR /var/lib/forebay
ENV PATH=/opt/forebay/bin:$PATH \
    FOREBAY_CACHE=/var/lib/forebay/cache \
    HF_HOME=/var/lib/forebay/huggingface \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
VOLUME /var/lib/forebay
EXPOSE 8080 8081
USER 10001
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["forebay"]
CMD ["serve", "--help"]
