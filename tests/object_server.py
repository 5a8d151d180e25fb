"""A server that speaks S3 on 127.0.0.1, with conditional puts: moto's, in this process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

from storage import object_store

BUCKET = "models"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key-name", "AWS_SECRET_ACCESS_KEY": "test-secret-9f2c"}


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment in which boto3 finds the server and an empty bucket; this process has it too while the block runs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    before = dict(os.environ)
    os.environ.update(env)
    object_store._client.cache_clear()
    try:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield env
    finally:
        os.environ.clear()
        os.environ.update(before)
        object_store._client.cache_clear()
        server.stop()
