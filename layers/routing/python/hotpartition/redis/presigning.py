"""Signature Version 4 in a query string. Pure: time and credentials are arguments.

Source: "Create a signed AWS API request", AWS IAM User Guide. Tests hold it to botocore's signer, which takes 90 ms to
import: more than all else that a function needs to reach Redis.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import quote, urlencode

from hotpartition.core.access import Credentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


def presign(
    *,
    host: str,
    parameters: dict[str, str],
    service: str,
    region: str,
    credentials: Credentials,
    now_seconds: float,
    expires_in_seconds: int,
) -> str:
    """Sign a GET of `/` in its query string; return the address, without a scheme.

    It serves any holder for `expires_in_seconds`.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_seconds))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    signed = {
        **parameters,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires_in_seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        signed["X-Amz-Security-Token"] = credentials.token
    query = urlencode(sorted(signed.items()), quote_via=quote, safe="-_.~")
    canonical = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{_NO_BODY}"
    to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{host}/?{query}&X-Amz-Signature={hmac.digest(key, to_sign.encode(), 'sha256').hex()}"
