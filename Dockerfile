# One image for the Prefect server and the workers.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY autoopt autoopt
COPY flows flows
RUN python -m venv /opt/autoopt \
 && /opt/autoopt/bin/pip install --no-cache-dir --disable-pip-version-check \
    --constraint constraints.txt '.[images,plots,postgres,prefect,s3]'

FROM python:3.11.14-slim-bookworm
RUN useradd --uid 10001 --create-home autoopt \
 && mkdir -p /data /work \
 && chown autoopt:autoopt /data /work
COPY --from=build /opt/autoopt /opt/autoopt
ENV PATH=/opt/autoopt/bin:$PATH \
    AUTOOPT_HOME=/data \
    DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_SERVER_UI_STATIC_DIRECTORY=/home/autoopt/prefect-ui \
    PYTHONUNBUFFERED=1
USER autoopt
WORKDIR /work
CMD ["autoopt", "--help"]
