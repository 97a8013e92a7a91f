"""A stack as `hotpartition check` needs it: those of `OUTPUTS` that it has, by name, and its API.

With the write function it has the messages API as well. Failed calls raise `ToolError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hotpartition_cli.api import Api, Authorize
from hotpartition_cli.callers import LambdaCaller, UrlCaller
from hotpartition_cli.errors import FailedError
from hotpartition_cli.sdk import Subject, open_client, open_session, translated

OUTPUTS: Mapping[str, str] = {
    "operate": "OperateFunctionName",
    "write_message": "WriteMessageFunctionName",
    "read_messages": "ReadMessagesFunctionName",
    "consume_reports": "ConsumeReportsFunctionName",
}
"""The functions, and the stack's outputs that name them; those of a construct have more before and behind."""


class LocalStack:
    """The local run, by its control API."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._control = UrlCaller(url)
        status = self._control.status()
        self.functions = tuple(function for function in OUTPUTS if function in status["functions"])
        self.api = Api(status["api_url"])

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Call a function of `OUTPUTS` and return its response."""
        return self._control.invoke(function, event)


class AwsStack:
    """A stack on AWS, by its outputs, with the caller's credentials."""

    def __init__(self, name: str, *, outputs: Mapping[str, str], session: Any, token: str | None) -> None:
        """Open the clients. `token` is for the API's JWT authorizer; None: requests are signed (IAM)."""
        self.name = name
        self._lambda = open_client(session, "lambda")
        self._region: str = self._lambda.meta.region_name
        self._functions = find_functions(name, outputs)
        self.functions = tuple(self._functions)
        if "write_message" in self.functions and "ApiUrl" not in outputs:
            raise FailedError(f"{name} is no stack of hotpartition: it has no output ApiUrl", kind="not-found")
        authorize = _bearer(token) if token else _signer(session, self._region)
        self.api = Api(outputs.get("ApiUrl", ""), authorize)

    @classmethod
    def connect(cls, name: str, *, region: str | None, profile: str | None, token: str | None) -> AwsStack:
        """Find the stack, with credentials and region as every AWS tool finds them."""
        session = open_session(region, profile)
        client = open_client(session, "cloudformation")
        subject = Subject(
            "CloudFormation", "stack", name, "cloudformation:DescribeStacks", "`make deploy` prints the name"
        )
        described = translated(lambda: client.describe_stacks(StackName=name), subject, client.meta.region_name)
        outputs = {each["OutputKey"]: each["OutputValue"] for each in described["Stacks"][0].get("Outputs", ())}
        return cls(name, outputs=outputs, session=session, token=token)

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Call a function of `OUTPUTS` and return its response."""
        return LambdaCaller(self._functions[function], self._lambda, self._region, of=function)(event)


Stack = LocalStack | AwsStack


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
        found |= dict.fromkeys([function] if named else [], *named.values())
    if "operate" not in found:
        raise FailedError(
            f"{stack} is no stack of hotpartition: it has no output {OUTPUTS['operate']}", kind="not-found"
        )
    return found


def _bearer(token: str) -> Authorize:
    return lambda *_: {"authorization": f"Bearer {token}"}


def _signer(session: Any, region: str) -> Authorize:
    from botocore.auth import SigV4Auth  # noqa: PLC0415 - boto3 is imported where it is used
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
