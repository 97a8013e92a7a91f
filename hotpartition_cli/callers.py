"""Ways to a stack's functions: Lambda's API, and the control API of a local run. Failed calls raise `ToolError`.

boto3 and urllib3 are imported where they are used. `tables.py` needs no function.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from hotpartition_cli.errors import FailedError, UsageError
from hotpartition_cli.sdk import (
    CONNECT_SECONDS,
    RESPONSE_SECONDS,
    Subject,
    open_client,
    open_session,
    parse_json,
    translated,
)

CONNECTIONS = 16
"""Requests that may be under way at the same time."""
TIMEOUT_SECONDS = 10.0

Authorize = Callable[[str, str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Takes method, URL, body and headers, and returns the headers that authenticate the caller."""

OPERATIONS = "operate"
"""The operations function, as the local run and the log lines call it."""
MEASURED_SECONDS = 5
_MEASURED = {"wcu_per_second": "write_wcu", "refused_wcu_per_second": "throttled_wcu", "rcu_per_second": "read_rcu"}

OUTPUTS: Mapping[str, str] = {
    "operate": "OperateFunctionName",
    "write_message": "WriteMessageFunctionName",
    "read_messages": "ReadMessagesFunctionName",
    "consume_reports": "ConsumeReportsFunctionName",
}
"""The functions, and the stack's outputs that name them; those of a construct have more before and behind."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its status, its JSON (None where it has none), and its headers."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the status, and the API's description of an error."""
        said = self.document if isinstance(self.document, dict) else {}
        detail = said.get("detail") or said.get("message")
        return f"{self.status} ({detail})" if detail and self.status >= 400 else f"{self.status}"


class Api:
    """Sends requests; for several threads."""

    def __init__(
        self, url: str, authorize: Authorize = lambda *_: {}, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        import urllib3  # noqa: PLC0415

        self.url = url.rstrip("/")
        self._authorize = authorize
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=timeout_seconds)
        self._http = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, timeout=timeout)

    def request(
        self, method: str, path: str, content: Mapping[str, object] | None = None, *, if_match: str | None = None
    ) -> Response:
        """Send a request once.

        Raises:
            FailedError: there was no response, or the address is no URL.
        """
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        url = self.url + path
        if not is_url(url):
            raise FailedError(f"the API's address is no URL like https://HOST: {self.url!r}", kind="failed")
        body = b"" if content is None else json.dumps(content).encode()
        headers = {} if content is None else {"content-type": "application/json"}
        if if_match is not None:
            headers["if-match"] = if_match
        headers |= self._authorize(method, url, body, headers)
        try:
            response = self._http.request(method, url, body=body or None, headers=headers)
        except (HTTPError, UnicodeError) as error:
            raise FailedError(f"nothing responds at {self.url}: is it up?", kind="unreachable") from error
        return Response(response.status, parse_json(response.data), response.headers)


def messages_path(conversation_id: str, **query: object) -> str:
    """Build the path of a conversation's messages."""
    return _with_query(f"/conversations/{quote(conversation_id, safe='')}/messages", query)


def message_path(conversation_id: str, message_id: str, **query: object) -> str:
    """Build the path of one message."""
    return _with_query(f"{messages_path(conversation_id)}/{quote(message_id, safe='')}", query)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def is_url(text: str) -> bool:
    """Say whether a text is the address of a server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half an address in brackets
        return False


class UrlCaller:
    """Calls a function of a local run through its control API: the operations function by default."""

    def __init__(self, url: str, function: str = OPERATIONS) -> None:
        if not is_url(url):
            raise UsageError(f"--url should be like http://127.0.0.1:8001, not {url!r}")
        self._function = function
        self._api = Api(url, timeout_seconds=RESPONSE_SECONDS)

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Call the operations function."""
        return self.invoke(self._function, command)

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Call any function, and return its response or raise `ToolError`."""
        response = self._api.request("POST", f"/functions/{function}/invoke", event)
        match response.status:
            case 200:
                is_error = "X-Amz-Function-Error" in response.headers
                return read_response(response.document, is_error=is_error, of=function)
            case 404:
                raise FailedError(f"{self._api.url} has no function {function}: {_say(response)}", kind="not-found")
            case 429:
                raise FailedError(f"the local run has no environment free for {function}", kind="throttled")
            case status:
                raise FailedError(f"{self._api.url} responded with status {status}", kind="unreachable")

    def status(self) -> dict[str, Any]:
        """Ask for the running parts: the API's URL, the functions, and all else."""
        status = self._api.request("GET", "/status").document
        if not (isinstance(status, dict) and status.keys() >= {"api_url", "functions"}):
            raise FailedError(f"{self._api.url} is no control API: --url is what `make up` names", kind="not-found")
        return status

    def measure_shards(self, key: str) -> list[dict[str, Any]]:
        """Measure the load of each physical key of a key in the last five seconds, as DynamoDB's stand-in saw it."""
        since_ms = int(1000 * time.time()) - 1000 * MEASURED_SECONDS
        timeline = self._api.request("GET", f"/dynamodb/timeline?since_ms={since_ms}").document
        loads: dict[str, Counter[str]] = {}
        for row in timeline["buckets"]:
            if re.fullmatch(re.escape(key) + r"(#_?\d+)?", row["key"]):
                units = {name: row[of] / MEASURED_SECONDS for name, of in _MEASURED.items()}
                loads.setdefault(row["key"], Counter()).update(units)
        return [{"key": name, **units} for name, units in sorted(loads.items(), key=lambda one: (len(one[0]), one[0]))]


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
        return read_response(parse_json(read), is_error=is_error, of=self.of)


def _say(response: Response) -> str:
    """Say what the control API said about a name that it does not know, if it was one that responded."""
    there = response.document if isinstance(response.document, dict) else {}
    return str(there.get("message", "--url is the control API that `make up` names"))


def read_response(response: Any, *, is_error: bool, of: str = OPERATIONS) -> dict[str, Any]:
    """Take a function's response, or raise `ToolError` with the sentence that a person should read."""
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
    kind = str(error.get("kind"))
    raise (UsageError if kind == "invalid-request" else FailedError)(str(error.get("message")), kind=kind)


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack: its name, its functions among those of `OUTPUTS`, the call of one of them, and its API."""

    name: str
    functions: tuple[str, ...]
    invoke: Callable[[str, Mapping[str, object]], dict[str, Any]]
    api: Api


def open_local(url: str) -> Stack:
    """Open the local run, by its control API."""
    control = UrlCaller(url)
    status = control.status()
    functions = tuple(function for function in OUTPUTS if function in status["functions"])
    return Stack(url, functions, control.invoke, Api(status["api_url"]))


def find_stack(name: str, *, region: str | None, profile: str | None, token: str | None) -> Stack:
    """Find a stack on AWS, with credentials and region as every AWS tool finds them."""
    session = open_session(region, profile)
    client = open_client(session, "cloudformation")
    source = "`make deploy` prints the name"
    subject = Subject("CloudFormation", "stack", name, "cloudformation:DescribeStacks", source)
    described = translated(lambda: client.describe_stacks(StackName=name), subject, client.meta.region_name)
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described["Stacks"][0].get("Outputs", ())}
    return open_stack(name, outputs, session, token)


def open_stack(name: str, outputs: Mapping[str, str], session: Any, token: str | None) -> Stack:
    """Open a stack on AWS, by its outputs.

    `token` is for the API's JWT authorizer; None: requests are signed (IAM).
    """
    functions = find_functions(name, outputs)
    if "write_message" in functions and "ApiUrl" not in outputs:
        raise FailedError(f"{name} is no stack of hotpartition: it has no output ApiUrl", kind="not-found")
    client = open_client(session, "lambda")
    region: str = client.meta.region_name

    def invoke(function: str, event: Mapping[str, object]) -> dict[str, Any]:
        return LambdaCaller(functions[function], client, region, of=function)(event)

    authorize = _bearer(token) if token else _signer(session, region)
    return Stack(name, tuple(functions), invoke, Api(outputs.get("ApiUrl", ""), authorize))


def find_functions(stack: str, outputs: Mapping[str, str]) -> dict[str, str]:
    """Find the functions' names in a stack's outputs: ours are plain, a construct's have its id and a hash around them.

    Raises:
        FailedError: there is no operations function, or there are several, of several tables.
    """
    found: dict[str, str] = {}
    for function, output in OUTPUTS.items():
        named = {key: value for key, value in outputs.items() if re.fullmatch(rf".*{output}([0-9A-F]{{8}})?", key)}
        if len(named) > 1:
            raise FailedError(f"{stack} operates several tables ({', '.join(sorted(named))})", kind="not-found")
        if named:
            (found[function],) = named.values()
    if "operate" not in found:
        raise FailedError(
            f"{stack} is no stack of hotpartition: it has no output {OUTPUTS['operate']}", kind="not-found"
        )
    return found


def _bearer(token: str) -> Authorize:
    return lambda *_: {"authorization": f"Bearer {token}"}


def _signer(session: Any, region: str) -> Authorize:
    from botocore.auth import SigV4Auth  # noqa: PLC0415
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415

    def sign(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        request = AWSRequest(method=method, url=url, data=body, headers=dict(headers))
        # Asked each time: credentials may be replaced while the check runs.
        credentials = translated(session.get_credentials)
        if credentials is None:
            raise FailedError(
                "no usable AWS credentials: sign in, or name a profile with --profile", kind="no-credentials"
            )
        SigV4Auth(translated(credentials.get_frozen_credentials), "execute-api", region).add_auth(request)
        return dict(request.headers.items())

    return sign
