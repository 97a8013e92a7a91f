"""Region, endpoint and certificates from AWS's own variables, read as the SDKs read them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from hotpartition.core.access import Certificates
from hotpartition.core.errors import SettingsError


def find_region(environ: Mapping[str, str]) -> str:
    """Find the region that requests are signed for: `AWS_DEFAULT_REGION`, `AWS_REGION`, or a profile's.

    Raises:
        SettingsError: nothing names one.
    """
    region = environ.get("AWS_DEFAULT_REGION") or environ.get("AWS_REGION")
    if not region:
        import botocore.session  # noqa: PLC0415 - only a person's machine has no variable, and pays for it

        region = botocore.session.Session().get_config_variable("region")
    if not region:
        raise SettingsError(["AWS_REGION is missing (the region of the DynamoDB table)"])
    return region


def find_dynamodb_endpoint(environ: Mapping[str, str], configured: str, region: str) -> str:
    """Find where DynamoDB is: `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, the configured address, or the region's.

    The stack configures the address for its partition; without it the region is taken for one of the partition `aws`.

    Raises:
        SettingsError: an address is malformed.
    """
    if environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"):
            if address := environ.get(name):
                return _check_address(name, address)
    return _check_address("dynamodb_endpoint", configured or f"https://dynamodb.{region}.amazonaws.com")


def find_certificates(environ: Mapping[str, str]) -> Certificates:
    """Find the trusted authorities: `AWS_CA_BUNDLE`, else the machine's, else those that botocore ships.

    libcurl looks where the machine that built it had them, and some small images have no authorities.
    """
    if file := environ.get("AWS_CA_BUNDLE"):
        return Certificates(file=file)
    import ssl  # noqa: PLC0415 - takes 10 ms that an endpoint without TLS need not spend

    machine = ssl.get_default_verify_paths()
    if machine.cafile:
        return Certificates(file=machine.cafile)
    if machine.capath and any(Path(machine.capath).glob("*.0")):
        return Certificates(folder=machine.capath)
    botocore = find_spec("botocore")  # found without importing it
    if botocore is None or botocore.origin is None:
        return Certificates()
    return Certificates(file=str(Path(botocore.origin).with_name("cacert.pem")))


def _check_address(name: str, address: str) -> str:
    try:
        url = urlsplit(address)
        is_address = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError as error:
        raise SettingsError([f"{name} should be an address, not {address!r} ({error})"]) from error
    if not is_address or url.query or url.fragment or not address.isascii():
        raise SettingsError([f"{name} should be an address like https://host:8000, not {address!r}"])
    return address
