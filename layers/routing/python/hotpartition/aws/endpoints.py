"""Where a service of AWS is reached, and in which region: what the SDK works out, for what functions are given.

| | first that is there |
|---|---|
| region | `AWS_DEFAULT_REGION`, `AWS_REGION`, boto3's (a profile's) |
| endpoint | `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, the region's own |

`AWS_USE_DUALSTACK_ENDPOINT` and `AWS_USE_FIPS_ENDPOINT` choose among the region's own. What a configuration file says
of endpoints, and proxies, is the client `boto3`'s business. Source: botocore's `partitions.json` and DynamoDB's
endpoint rules; a test holds this module to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from hotpartition.errors import SettingsError

_SUFFIXES = (
    ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    ("", "amazonaws.com", "api.aws"),
)
"""Beginning of a region's name, the suffix of its host names, and that of those with IPv6 as well."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    """Where requests go. `header` is the host as requests name it: with the port, unless it is the scheme's own."""

    is_tls: bool
    host: str
    port: int
    path: str
    header: str


def find_region(environ: Mapping[str, str]) -> str:
    """Find the region that requests are signed for.

    Raises:
        SettingsError: nothing names one.
    """
    region = environ.get("AWS_DEFAULT_REGION") or environ.get("AWS_REGION")
    if not region:
        import boto3  # noqa: PLC0415 - only a person's machine has no variable, and pays for it

        region = (boto3.DEFAULT_SESSION or boto3.Session()).region_name
    if not region:
        raise SettingsError(["AWS_REGION is missing (the region of the DynamoDB table)"])
    return region


def find_dynamodb_endpoint(environ: Mapping[str, str], region: str) -> Endpoint:
    """Find where DynamoDB is.

    Raises:
        SettingsError: an address is named that is none.
    """
    if environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"):
            if address := environ.get(name):
                return _parse_endpoint(name, address)
    return _parse_endpoint("AWS_REGION", f"https://{_dynamodb_host(environ, region)}")


def _dynamodb_host(environ: Mapping[str, str], region: str) -> str:
    has_ipv6 = environ.get("AWS_USE_DUALSTACK_ENDPOINT", "").lower() == "true"
    is_fips = environ.get("AWS_USE_FIPS_ENDPOINT", "").lower() == "true"
    suffix = next(s[1 + has_ipv6] for s in _SUFFIXES if region.startswith(s[0]))
    if is_fips and not (region.startswith("us-gov-") and not has_ipv6):  # all of GovCloud's are
        return f"dynamodb-fips.{region}.{suffix}"
    return f"dynamodb.{region}.{suffix}"


def _parse_endpoint(name: str, address: str) -> Endpoint:
    try:
        url = urlsplit(address)
        scheme, host, port = url.scheme, url.hostname, url.port
    except ValueError as error:
        raise SettingsError([f"{name} should be an address, not {address!r} ({error})"]) from error
    if scheme not in _DEFAULT_PORTS or not host or url.query or url.fragment or not host.isascii():
        raise SettingsError([f"{name} should be an address like https://host:8000, not {address!r}"])
    shown = f"[{host}]" if ":" in host else host
    if port is None or port == _DEFAULT_PORTS[scheme]:
        return Endpoint(scheme == "https", host, _DEFAULT_PORTS[scheme], url.path or "/", shown)
    return Endpoint(scheme == "https", host, port, url.path or "/", f"{shown}:{port}")
