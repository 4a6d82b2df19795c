# The gateway, and with the same image the simulated engines of the compose file's `sim` profile.

FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/forebay
COPY requirements/runtime.lock requirements/
RUN /opt/forebay/bin/pip install --no-cache-dir --no-deps -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY tokenizer_pool tokenizer_pool
COPY scheduler scheduler
COPY backends backends
COPY bench bench
RUN /opt/forebay/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/forebay /opt/forebay
RUN useradd --system --uid 10001 --create-home --home-dir /var/cache/forebay forebay
USER forebay
ENV PATH=/opt/forebay/bin:$PATH FOREBAY_CACHE=/var/cache/forebay PYTHONUNBUFFERED=1
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["forebay"]
CMD ["serve", "--help"]
