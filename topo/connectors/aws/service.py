"""A client of one service, and its errors as topo's."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from topo.config.secrets import Secret, revealed
from topo.connectors.base import load_client
from topo.errors import ComponentError, Unavailable

REQUIRES = "boto3>=1.35"
_PASSING = (
    "InternalFailure",
    "InternalServerError",
    "KMSThrottlingException",
    "LimitExceededException",
    "OverLimit",
    "ProvisionedThroughputExceededException",
    "RequestTimeout",
    "RequestThrottled",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
)


class Service:
    """A client, made with boto3's own rules for what is not given: region, credentials, endpoint.

    `options` are arguments of `boto3.client`, such as `region_name` and `endpoint_url`.
    """

    def __init__(self, connector: str, name: str, options: dict[str, Any], about: str) -> None:
        boto3 = load_client("boto3", connector, "aws")
        self._errors = load_client("botocore.exceptions", connector, "aws")
        config = load_client("botocore.config", connector, "aws").Config(
            connect_timeout=5,
            read_timeout=20,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        self._about = f"{connector}: {about}"
        with self.reaching():
            self.client: Any = boto3.client(name, config=config, **revealed(options))
        # An instance that is rebuilt elsewhere is let go without a word.
        weakref.finalize(self, self.client.close).atexit = False

    def close(self) -> None:
        self.client.close()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn what may pass into Unavailable, and the rest into a ComponentError."""
        errors = self._errors
        try:
            yield
        except errors.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code.rpartition(".")[2] in _PASSING or status >= 500:
                raise Unavailable(f"{self._about}: {error}") from error
            raise ComponentError(f"{self._about}: {error}") from error
        except (errors.ConnectionError, errors.HTTPClientError) as error:
            raise Unavailable(f"{self._about}: {error}") from error
        except errors.BotoCoreError as error:
            raise ComponentError(
                f"{self._about}: {error}",
                hint="boto3 looks for region and credentials in the environment and in ~/.aws",
            ) from error


def check_options(connector: str, options: dict[str, Any]) -> None:
    """Raise ComponentError for an argument that boto3.client does not have."""
    known = {
        "region_name",
        "endpoint_url",
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "use_ssl",
        "verify",
    }
    for name, value in options.items():
        if name not in known:
            raise ComponentError(
                f"{connector}: no argument {name!r}",
                hint=f"besides its own it takes boto3's: {', '.join(sorted(known))}",
            )
        if name.startswith("aws_") and not isinstance(value, Secret):
            raise ComponentError(
                f"{connector}: {name} is in the open", hint="give Secret.env('NAME')"
            )
