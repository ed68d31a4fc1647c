"""A client of one service, and its errors as topo's."""

from __future__ import annotations

from typing import Any

from topo.config.secrets import Secret, revealed
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.errors import ComponentError

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


class Service(Remote):
    """A client, made with boto3's own rules for what is not given: region, credentials, endpoint.

    `options` are arguments of `boto3.client`, such as `region_name` and `endpoint_url`.
    """

    def __init__(self, connector: str, name: str, options: dict[str, Any], about: str) -> None:
        super().__init__(connector, about)
        boto3 = load_client("boto3", connector, "aws")
        self._errors = load_client("botocore.exceptions", connector, "aws")
        config = load_client("botocore.config", connector, "aws").Config(
            connect_timeout=5,
            read_timeout=20,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        with self.reaching():
            self.client: Any = boto3.client(name, config=config, **revealed(options))
        self.close_at_last(self.client.close)

    def close(self) -> None:
        self.client.close()

    def in_words(self, error: BaseException) -> Exception | None:
        errors = self._errors
        if isinstance(error, errors.ClientError):
            code = error.response.get("Error", {}).get("Code", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code.rpartition(".")[2] in _PASSING or status >= 500:
                return self.unavailable(error)
            return self.refused(error)
        if isinstance(error, (errors.ConnectionError, errors.HTTPClientError)):
            return self.unavailable(error)
        if isinstance(error, errors.BotoCoreError):
            return self.refused(
                error, "boto3 looks for region and credentials in the environment and in ~/.aws"
            )
        return None


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
