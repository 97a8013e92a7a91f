"""Two ways to the operations function: Lambda's API, and the control API of a local run. `tables.py` is without one."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from hotpartition_cli.errors import FailedError, FoundError, UsageError
from hotpartition_cli.sdk import CONNECT_SECONDS, RESPONSE_SECONDS, Subject, open_client, open_session, translated

if TYPE_CHECKING:
    import urllib3

OPERATIONS = "operate"
"""The operations function, as the local run and the log lines call it."""
MEASURED_SECONDS = 5
_MEASURED = {"wcu_per_second": "write_wcu", "refused_wcu_per_second": "throttled_wcu", "rcu_per_second": "read_rcu"}


class UrlCaller:
    """Calls a function of a local run through its control API: the operations function by default."""

    def __init__(self, url: str, function: str = OPERATIONS) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
            raise UsageError(f"--url should be like http://127.0.0.1:8001, not {url!r}")
        import urllib3  # noqa: PLC0415 - it takes longer than the rest, and `--function` does without

        self._base = url.rstrip("/")
        self._function = function
        self._http = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=RESPONSE_SECONDS)
        )

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Call the operations function."""
        return self.invoke(self._function, command)

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Call any function, and return its response or raise `ToolError`."""
        response = self._request("POST", f"/functions/{function}/invoke", json.dumps(event).encode())
        match response.status:
            case 200:
                return read_response(response.data, is_error="X-Amz-Function-Error" in response.headers, of=function)
            case 404:
                there = _parse_message(response.data) or "--url is the control API that `make up` names"
                raise FailedError(f"{self._base} has no function {function}: {there}", kind="not-found")
            case 429:
                raise FailedError(f"the local run has no environment free for {function}", kind="throttled")
            case status:
                raise FailedError(f"{self._base} responded with status {status}", kind="unreachable")

    def status(self) -> dict[str, Any]:
        """Ask for the running parts: the API's URL, the functions, and all else."""
        response = self._request("GET", "/status")
        try:
            status: dict[str, Any] = json.loads(response.data)
            return {**status, "api_url": status["api_url"], "functions": status["functions"]}
        except (ValueError, KeyError, TypeError) as error:
            raise FailedError(
                f"{self._base} is no control API: --url is what `make up` names", kind="not-found"
            ) from error

    def measure_shards(self, key: str) -> list[dict[str, Any]]:
        """Measure the load of each physical key of a key in the last five seconds, as DynamoDB's stand-in saw it."""
        since_ms = int(1000 * time.time()) - 1000 * MEASURED_SECONDS
        response = self._request("GET", f"/dynamodb/timeline?since_ms={since_ms}")
        loads: dict[str, Counter[str]] = {}
        for row in json.loads(response.data)["buckets"]:
            if re.fullmatch(re.escape(key) + r"(#_?\d+)?", row["key"]):
                units = {name: row[of] / MEASURED_SECONDS for name, of in _MEASURED.items()}
                loads.setdefault(row["key"], Counter()).update(units)
        return [{"key": name, **units} for name, units in sorted(loads.items(), key=lambda one: (len(one[0]), one[0]))]

    def _request(self, method: str, path: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as above

        try:
            return self._http.request(method, self._base + path, body=body)
        except (HTTPError, UnicodeError) as error:
            raise FailedError(f"nothing responds at {self._base}: is the local run up?", kind="unreachable") from error


@dataclass(frozen=True, slots=True)
class LambdaCaller:
    """Calls a function through Lambda: the operations function, unless it is called by another name."""

    function: str
    client: Any
    region: str
    of: str = OPERATIONS

    @classmethod
    def connect(cls, function: str, *, region: str | None, profile: str | None) -> LambdaCaller:
        """Find credentials and region as every AWS tool does."""
        client = open_client(open_session(region, profile), "lambda")
        return cls(function, client, client.meta.region_name)

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Implement `Caller`."""
        payload = json.dumps(command).encode()
        source = "the stack's output OperateFunctionName names it"
        subject = Subject("Lambda", "function", self.function, "lambda:InvokeFunction", source)

        def invoke() -> tuple[bytes, bool]:
            response = self.client.invoke(FunctionName=self.function, Payload=payload)
            return response["Payload"].read(), "FunctionError" in response

        read, is_error = translated(invoke, subject, self.region)
        return read_response(read, is_error=is_error, of=self.of)


def _parse_message(body: bytes) -> str:
    """Read the control API's message about a name that it does not know; empty, if another server responded."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def read_response(payload: bytes, *, is_error: bool, of: str = OPERATIONS) -> dict[str, Any]:
    """Read a function's response, or raise `ToolError` with the sentence that a person should read."""
    try:
        response = json.loads(payload)
    except ValueError as error:
        raise FailedError(f"what responded is not the function {of}: its response is no JSON", kind="failed") from error
    if not isinstance(response, dict):
        raise FailedError(f"what responded is not the function {of}: its response is no JSON object", kind="failed")
    if is_error:
        what = f"{response.get('errorType', 'error')}: {response.get('errorMessage', 'without a message')}"
        raise FailedError(f"the function {of} failed ({what}); its log says more", kind="failed")
    if "error" in response:
        raise_error(response["error"])
    return response


def raise_error(error: Mapping[str, Any]) -> NoReturn:
    """Raise the error that a function's response describes."""
    kind, message = str(error.get("kind")), str(error.get("message"))
    match kind:
        case "invalid-request":
            raise UsageError(message, kind=kind)
        case "malformed-route":
            raise FoundError(message, kind=kind)
        case _:
            raise FailedError(message, kind=kind)
