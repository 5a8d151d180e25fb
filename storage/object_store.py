"""Objects of an ``s3://`` root: conditional puts, bounded retries, and errors that name the object and the cure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.errors import StorageError

MAX_ATTEMPTS = 5
"""Tries of one request in all, with a growing pause between them, before the stage fails."""
CONNECT_SECONDS = 5
READ_SECONDS = 60
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_MISSING = {"NoSuchKey", "404", "NotFound"}


class Refused(StorageError):
    """A conditional put found another object than its condition names."""


@dataclass(frozen=True)
class Found:
    """An object: its bytes, its ETag, and its age in seconds by the store's own clock."""

    data: bytes
    etag: str
    age: float


@dataclass(frozen=True)
class ObjectStore:
    """The objects below a bucket's prefix ("" for the whole bucket); keys are relative to it."""

    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def get(self, key: str) -> Found | None:
        """The object, None when there is none."""
        with _told(self, key):
            answer = _client().get_object(Bucket=self.bucket, Key=self._full(key))
            now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
            modified: datetime = answer["LastModified"]
            return Found(answer["Body"].read(), str(answer["ETag"]), (now - modified).total_seconds())
        return None

    def put(self, key: str, data: bytes) -> str:
        """Write an object over whatever stands there; gives its ETag."""
        with _told(self, key):
            answer = _client().put_object(Bucket=self.bucket, Key=self._full(key), Body=data)
            return str(answer["ETag"])
        raise StorageError(_failure(self, key, "no such bucket"))

    def put_new(self, key: str, data: bytes) -> str:
        """Write an object that does not exist yet; gives its ETag. Refused when another stands there."""
        return self._put_if(key, data, IfNoneMatch="*")

    def put_over(self, key: str, data: bytes, etag: str) -> str:
        """Write over the object of this ETag; gives the new one. Refused when another stands there, or none."""
        return self._put_if(key, data, IfMatch=etag)

    def _put_if(self, key: str, data: bytes, **condition: str) -> str:
        try:
            with _told(self, key):
                answer = _client().put_object(Bucket=self.bucket, Key=self._full(key), Body=data, **condition)
                return str(answer["ETag"])
        except Refused:
            # A lost answer makes the client send the put twice, and the second finds the first.
            if (found := self.get(key)) is not None and found.data == data:
                return found.etag
            raise
        raise Refused(f"{self.url}/{key} is gone")

    def upload(self, path: Path, key: str) -> None:
        """A file of any size as an object, in several pieces when it is large."""
        with _told(self, key):
            _client().upload_file(str(path), self.bucket, self._full(key))

    def download(self, key: str, path: Path) -> bool:
        """An object into a file; gives whether there is one."""
        with _told(self, key):
            _client().download_file(self.bucket, self._full(key), str(path))
            return True
        return False

    def list(self, below: str) -> dict[str, str]:
        """Key -> ETag of every object whose key begins with ``below``."""
        found: dict[str, str] = {}
        with _told(self, below):
            pages = _client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._full(below))
            for page in pages:
                for entry in page.get("Contents", []):
                    found[entry["Key"].removeprefix(self._full(""))] = str(entry["ETag"])
        return found

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        with _told(self, key):
            _client().delete_object(Bucket=self.bucket, Key=self._full(key))

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key


def is_url(root: str) -> bool:
    """Whether a store's root is an address, not a folder."""
    return "://" in root


def parse(url: str) -> ObjectStore:
    """The object store behind an address.

    Raises:
        StorageError: not ``s3://BUCKET/PREFIX``, or with a password in it.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:  # the address is noted and shown, a password must not be
        raise StorageError("IGRPO_HOME holds credentials; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if parts.scheme != "s3":
        raise StorageError(
            f"IGRPO_HOME={url} is of a kind without the conditional put that the lineage lock needs; "
            "take a folder or s3://BUCKET/PREFIX (AWS_ENDPOINT_URL names a server that speaks S3)"
        )
    names = parts.path.strip("/").split("/")
    if not parts.netloc or parts.query or parts.fragment or any(name in (".", "..") for name in names):
        raise StorageError(f"IGRPO_HOME={url} is not s3://BUCKET/PREFIX")
    return ObjectStore(parts.netloc, parts.path.strip("/"))


@cache
def _client() -> Any:
    """boto3's client; credentials, region and endpoint come from the environment (AWS_*), as boto3 reads them."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise StorageError("an s3:// store needs boto3: pip install -e '.[s3]'") from error
    settings = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        max_pool_connections=32,
    )
    return boto3.client("s3", config=settings)


@contextmanager
def _told(store: ObjectStore, key: str) -> Iterator[None]:
    """Errors of boto3 in our words. A missing object ends the block without an error."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        from boto3.exceptions import S3UploadFailedError

        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _MISSING:
            return
        if code in _REFUSED:
            raise Refused(f"{store.url}/{key} was changed by another run") from error
        raise StorageError(_failure(store, key, code)) from error
    except (BotoCoreError, S3UploadFailedError) as error:
        raise StorageError(_failure(store, key, type(error).__name__)) from error


def _failure(store: ObjectStore, key: str, what: str) -> str:
    return (
        f"{store.url}/{key} can not be reached or written after at most {MAX_ATTEMPTS} tries ({what}); check the bucket, "
        "AWS_ENDPOINT_URL and the AWS_* credentials, then run again"
    )
