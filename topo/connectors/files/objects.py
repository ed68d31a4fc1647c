"""Objects of S3, and of stores that speak its protocol, as files: listed, fetched, moved.

An object never changes, so that it is fetched whole, into a file without a name, and read there
as every other file: the position in it means the same, whatever the format.
"""

from __future__ import annotations

import fnmatch
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from topo.connectors.aws.service import REQUIRES, Service, check_options
from topo.connectors.files.listing import ListedFile, fixed_part, numbered
from topo.errors import ComponentError

T = TypeVar("T")
SCHEME = "s3://"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MOST_SUFFIX = 40


def is_object(path: str) -> bool:
    """Return True if a path names objects of a store."""
    return path.startswith(SCHEME)


def check_place(connector: str, path: str, storage: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a place of files requires; raise ComponentError if it cannot be one."""
    check_options(connector, dict(storage))
    if not is_object(path):
        scheme = _SCHEME.match(path)
        if scheme is not None:
            raise ComponentError(
                f"{connector}: {path!r}: files of {scheme[0]} are not supported",
                hint=f"it is a path of this machine, such as one of a mounted share, or "
                f"{SCHEME}BUCKET/KEY",
            )
        if storage:
            raise ComponentError(f"{connector}: storage= is for {SCHEME}, and {path!r} is a path")
        return ()
    if not path.removeprefix(SCHEME).partition("/")[0]:
        raise ComponentError(f"{connector}: {path!r} names no bucket; write s3://BUCKET/PREFIX")
    return (REQUIRES,)


class ObjectStore:
    """A bucket; its objects are named as `s3://BUCKET/KEY`."""

    def __init__(self, connector: str, path: str, storage: Mapping[str, Any]) -> None:
        self._connector = connector
        self._bucket = path.removeprefix(SCHEME).partition("/")[0]
        self._service = Service(connector, "s3", dict(storage), f"{SCHEME}{self._bucket}")

    def close(self) -> None:
        self._service.close()

    def list(self, pattern: str) -> list[ListedFile]:
        """Return the objects of a key, a prefix that ends in "/", or a pattern, oldest first.

        Parts of keys that begin with a dot or an underscore are somebody's unfinished work.
        """
        wanted = self._key(pattern)
        if not wanted or wanted.endswith("/"):
            wanted += "*"
        prefix = fixed_part(wanted)
        found = []
        with self._service.reaching():
            pages = self._service.client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for page in pages:
                for one in page.get("Contents", []):
                    key = one["Key"]
                    name = key.rpartition("/")[2]
                    if name and name[0] not in "._" and fnmatch.fnmatchcase(key, wanted):
                        path = f"{SCHEME}{self._bucket}/{key}"
                        time = one["LastModified"].timestamp()
                        found.append(ListedFile(path, one["Size"], time, 0, one["ETag"]))
        return sorted(found, key=lambda one: (one.mtime, one.path))

    def opened(self, path: str, opener: Callable[[str], T]) -> T:
        """Return what `opener` makes of a copy of an object, of which no name is left."""
        suffix = f"-{os.path.basename(path)[-_MOST_SUFFIX:]}"  # a key may be longer than a name
        handle, copy = tempfile.mkstemp(suffix=suffix, prefix="topo-object-")
        os.close(handle)
        try:
            self._fetch(path, copy)
            return opener(copy)
        finally:
            os.unlink(copy)

    def _fetch(self, path: str, copy: str) -> None:
        try:
            with self._service.reaching():
                self._service.client.download_file(self._bucket, self._key(path), copy)
        except ComponentError as error:
            if _is_missing(error):
                raise FileNotFoundError(path) from error
            raise

    def put(self, path: str, copy: str) -> None:
        """Store a file's content as an object: all of it, or nothing."""
        with self._service.reaching():
            self._service.client.upload_file(copy, self._bucket, self._key(path))

    # -- an object in parts -------------------------------------------------------------------

    def begin_upload(self, path: str) -> str:
        """Begin an object that is uploaded in parts; return the upload's id."""
        with self._service.reaching():
            made = self._service.client.create_multipart_upload(
                Bucket=self._bucket, Key=self._key(path)
            )
        return str(made["UploadId"])

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        """Upload a part, over one of the same number; return its tag."""
        with self._service.reaching():
            made = self._service.client.upload_part(
                Bucket=self._bucket,
                Key=self._key(path),
                UploadId=upload,
                PartNumber=number,
                Body=data,
            )
        return str(made["ETag"])

    def complete(self, path: str, upload: str, tags: Iterable[str]) -> None:
        """Make the object of its parts."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        with self._service.reaching():
            self._service.client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key(path),
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )

    def abort_uploads(self, prefix: str, known: set[str]) -> None:
        """Give up the uploads of keys with a prefix, save those that are known."""
        client = self._service.client
        with self._service.reaching():
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._key(prefix)
            )
            for page in pages:
                for one in page.get("Uploads", []):
                    if one["UploadId"] not in known:
                        client.abort_multipart_upload(
                            Bucket=self._bucket, Key=one["Key"], UploadId=one["UploadId"]
                        )

    # -- whole objects ------------------------------------------------------------------------

    def remove(self, path: str) -> None:
        with self._service.reaching():
            self._service.client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def exists(self, path: str) -> bool:
        return self.version(path) is not None

    def version(self, path: str) -> str | None:
        """Return the tag of an object's content; None if it is not there."""
        try:
            with self._service.reaching():
                key = self._key(path)
                answer = self._service.client.head_object(Bucket=self._bucket, Key=key)
        except ComponentError as error:
            if _is_missing(error):
                return None
            raise
        return str(answer["ETag"])

    def move(self, path: str, prefix: str, *, pattern: str = "") -> None:
        """Give an object a name below another prefix of its bucket, one that no object has.

        With its pattern it keeps the directories there. A store reserves no names: who moves beside
        others, to the same prefix, has to give it.
        """
        key = self._key(path)
        name = key.rpartition("/")[2]
        if pattern:
            name = key.removeprefix(fixed_part(self._key(pattern)).rpartition("/")[0]).lstrip("/")
        target = next(
            target
            for target in map(self._key, numbered(f"{prefix.strip('/')}/{name}"))
            if not self.exists(target)
        )
        with self._service.reaching():
            source = {"Bucket": self._bucket, "Key": key}
            self._service.client.copy(source, self._bucket, target)
        self.remove(path)

    def _key(self, path: str) -> str:
        if not is_object(path):
            return path
        bucket, _, key = path.removeprefix(SCHEME).partition("/")
        if bucket != self._bucket:
            raise ComponentError(f"{self._connector}: {path!r} is not in {self._bucket!r}")
        return key


def _is_missing(error: ComponentError) -> bool:
    return "404" in str(error) or "NoSuchKey" in str(error)
