"""Two ways to the operations function: Lambda's API, and the control API of a local run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import urlsplit

import urllib3

from hotpartition_cli.errors import FailedError, FoundError, ToolError, UsageError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 70.0
"""Longer than the function may run, so that it is the function that says what went wrong."""

LOCAL_FUNCTION = "operate"

_CREDENTIAL_ERRORS = (
    *("ExpiredTokenException", "InvalidSignatureException"),
    *("MissingAuthenticationTokenException", "UnrecognizedClientException"),
)


class Caller(Protocol):
    """Calls the operations function."""

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Send a command and return its response, or raise `ToolError` with what went wrong."""
        ...


class UrlCaller:
    """Calls the function of a local run through its control API."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
            raise UsageError(f"--url should be like http://127.0.0.1:8001, not {url!r}")
        self._base = url.rstrip("/")
        self._http = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=RESPONSE_SECONDS)
        )

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """See `Caller`."""
        response = self._request("POST", f"/functions/{LOCAL_FUNCTION}/invoke", json.dumps(command).encode())
        match response.status:
            case 200:
                return read_response(response.data, is_error="X-Amz-Function-Error" in response.headers)
            case 404:
                raise FailedError(
                    f"{self._base} has no operations function: --url is the control API that `make up` names",
                    kind="not-found",
                )
            case 429:
                raise FailedError("the local run has no environment free for the function", kind="throttled")
            case status:
                raise FailedError(f"{self._base} answered with status {status}", kind="unreachable")

    def api_url(self) -> str:
        """Ask where the local run serves the messages API."""
        response = self._request("GET", "/status")
        try:
            return str(json.loads(response.data)["api_url"])
        except (ValueError, KeyError, TypeError) as error:
            raise FailedError(
                f"{self._base} is no control API: --url is what `make up` names", kind="not-found"
            ) from error

    def _request(self, method: str, path: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
        try:
            return self._http.request(method, self._base + path, body=body)
        except (urllib3.exceptions.HTTPError, UnicodeError) as error:
            raise FailedError(f"nothing answers at {self._base}: is the local run up?", kind="unreachable") from error


class LambdaCaller:
    """Calls the function of a stack through Lambda."""

    def __init__(self, function: str, client: Any, region: str) -> None:
        self._function = function
        self._client = client
        self._region = region

    @classmethod
    def connect(cls, function: str, *, region: str | None, profile: str | None) -> LambdaCaller:
        """Find credentials and region as every AWS tool does."""
        # Imported here because it takes longer than all that `plan`, --help and the local run need together.
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=RESPONSE_SECONDS,
            # Repeating any of our commands is safe.
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        session = _translated(lambda: boto3.Session(profile_name=profile, region_name=region), function)
        client = _translated(lambda: session.client("lambda", config=config), function)
        return cls(function, client, client.meta.region_name)

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """See `Caller`."""
        payload = json.dumps(command).encode()
        response = _translated(
            lambda: self._client.invoke(FunctionName=self._function, Payload=payload), self._function, self._region
        )
        return read_response(response["Payload"].read(), is_error="FunctionError" in response)


def read_response(payload: bytes, *, is_error: bool) -> dict[str, Any]:
    """Read what the function answered, or raise `ToolError` with the sentence that a person should read."""
    try:
        response = json.loads(payload)
    except ValueError as error:
        raise FailedError("what answered is no operations function: its answer is no JSON", kind="failed") from error
    if not isinstance(response, dict):
        raise FailedError("what answered is no operations function: its answer is no JSON object", kind="failed")
    if is_error:
        what = f"{response.get('errorType', 'error')}: {response.get('errorMessage', 'without a message')}"
        raise FailedError(f"the operations function failed ({what}); its log says more", kind="failed")
    if "error" in response:
        _raise_error(response["error"])
    return response


def _raise_error(error: Mapping[str, Any]) -> NoReturn:
    kind, message = str(error.get("kind")), str(error.get("message"))
    match kind:
        case "invalid-request":
            raise UsageError(message, kind=kind)
        case "malformed-route":
            raise FoundError(message, kind=kind)
        case _:
            raise FailedError(message, kind=kind)


def _translated(call: Callable[[], Any], function: str, region: str = "") -> Any:
    """Call the SDK, and say its errors in a sentence that names the way out."""
    from botocore import exceptions as sdk  # noqa: PLC0415 - as boto3 above

    try:
        return call()
    except (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError, sdk.SSOError) as error:
        raise FailedError(
            f"no usable AWS credentials ({error}): sign in, or name a profile with --profile", kind="no-credentials"
        ) from error
    except sdk.NoRegionError as error:
        raise UsageError("no AWS region is set: pass --region or set AWS_REGION") from error
    except sdk.ProfileNotFound as error:
        raise UsageError(f"{error}") from error
    except sdk.ParamValidationError as error:
        raise UsageError(f"{function!r} cannot be the name of a function") from error
    except sdk.ClientError as error:
        raise _explain_refusal(error, function, region) from error
    except sdk.BotoCoreError as error:
        raise FailedError(f"Lambda did not answer: {error}", kind="unreachable") from error


def _explain_refusal(error: ClientError, function: str, region: str) -> ToolError:
    code = error.response["Error"]["Code"]
    if code == "ResourceNotFoundException":
        return FailedError(
            f"there is no function {function} in {region}: the stack's output OperateFunctionName names it",
            kind="not-found",
        )
    if code == "TooManyRequestsException":
        return FailedError("Lambda throttled the call: try again in a moment", kind="throttled")
    if code.startswith("AccessDenied"):
        return FailedError(
            f"your AWS identity may not call {function}: it needs lambda:InvokeFunction on it", kind="access-denied"
        )
    if code in _CREDENTIAL_ERRORS:
        return FailedError(f"AWS refused the credentials ({code}): sign in again", kind="no-credentials")
    return FailedError(f"Lambda refused the call: {code}: {error.response['Error'].get('Message', '')}", kind="failed")
