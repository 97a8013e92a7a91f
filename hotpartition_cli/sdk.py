"""Calls AWS's SDK, and says its errors in a sentence that names the way out.

boto3 is imported where it is used: that takes longer than all that `plan`, --help and the local run need together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hotpartition.core.errors import CredentialsError, StoreRefusedError
from hotpartition_cli.errors import FailedError, ToolError, UsageError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

ResultT = TypeVar("ResultT")

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 70.0
"""Longer than the operations function may run, so that the function itself reports the error."""

_NOT_FOUND = frozenset({"ResourceNotFoundException", "ValidationError"})
"""CloudFormation calls a stack that does not exist a wrong parameter."""
_THROTTLES = frozenset({"TooManyRequestsException", "ThrottlingException", "Throttling"})
_CREDENTIAL_ERRORS = frozenset(
    {
        *("ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidSignatureException"),
        *("MissingAuthenticationTokenException", "UnrecognizedClientException"),
    }
)


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a call: a function, a stack or a log group, the right that it takes, and where its name stands."""

    service: str
    kind: str
    name: str
    right: str
    source: str


def open_session(region: str | None, profile: str | None) -> Any:
    """Find credentials and region as every AWS tool does.

    Raises:
        ToolError: credentials or region are missing.
    """
    import boto3  # noqa: PLC0415

    return translated(lambda: boto3.Session(profile_name=profile, region_name=region))


def open_client(session: Any, service: str) -> Any:
    """Open a client that gives up in time. Repeating any of our calls is safe."""
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=RESPONSE_SECONDS,
        retries={"total_max_attempts": 2, "mode": "standard"},
    )
    return translated(lambda: session.client(service, config=config))


def parse_json(body: bytes) -> Any:
    """Parse a response's body; None, if it is no JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def translated(call: Callable[[], ResultT], subject: Subject | None = None, region: str = "") -> ResultT:
    """Call the SDK, or the library, whose errors have the SDK's own as their cause.

    Raises:
        ToolError: with the reason and the way out.
    """
    from botocore import exceptions as sdk  # noqa: PLC0415

    try:
        try:
            return call()
        except (CredentialsError, StoreRefusedError) as error:
            raise error.__cause__ or error from None
    except (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError, sdk.SSOError) as error:
        raise FailedError(
            f"no usable AWS credentials ({error}): sign in, or name a profile with --profile", kind="no-credentials"
        ) from error
    except sdk.NoRegionError as error:
        raise UsageError("no AWS region is set: pass --region or set AWS_REGION") from error
    except sdk.ProfileNotFound as error:
        raise UsageError(f"{error}") from error
    except sdk.ParamValidationError as error:
        what = f"{subject.name!r} cannot be the name of a {subject.kind}" if subject else str(error)
        raise UsageError(what) from error
    except sdk.ClientError as error:
        raise _explain(error, subject, region) from error
    except sdk.BotoCoreError as error:
        raise FailedError(
            f"{subject.service if subject else 'AWS'} did not respond: {error}", kind="unreachable"
        ) from error


def _explain(error: ClientError, subject: Subject | None, region: str) -> ToolError:
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    service = subject.service if subject else "AWS"
    if subject and code in _NOT_FOUND:
        return FailedError(f"there is no {subject.kind} {subject.name} in {region}: {subject.source}", kind="not-found")
    if code in _THROTTLES:
        return FailedError(f"{service} throttled the call: try again in a moment", kind="throttled")
    if subject and code.startswith("AccessDenied"):
        return FailedError(
            f"your AWS identity may not use {subject.name}: it needs {subject.right} on it", kind="access-denied"
        )
    if code in _CREDENTIAL_ERRORS:
        return FailedError(f"AWS refused the credentials ({code}): sign in again", kind="no-credentials")
    return FailedError(f"{service} refused the call: {code}: {message}", kind="failed")
