"""Presigned addresses, held to botocore's own."""

import string
from datetime import UTC, datetime

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.access import Credentials
from hotpartition.redis.presigning import presign

secrets = st.text(string.ascii_letters + string.digits + "+/=", min_size=1, max_size=60)
regions = st.sampled_from(["eu-central-1", "us-gov-west-1", "cn-north-1"])
instants = st.integers(0, 4_000_000_000)
some_credentials = st.builds(Credentials, secrets, secrets, st.just("") | secrets)


@given(some_credentials, instants, regions, st.text(string.ascii_letters + string.digits + "-_ /é", max_size=20))
def test_presigned_addresses_are_those_of_the_sdk(credentials, now, region, user):
    """As ElastiCache takes them for passwords."""
    address = presign(
        host="cache",
        parameters={"Action": "connect", "User": user},
        service="elasticache",
        region=region,
        credentials=credentials,
        now_seconds=now,
        expires_in_seconds=900,
    )
    unsigned, _, signature = address.partition("&X-Amz-Signature=")
    request = AWSRequest("GET", f"http://{unsigned}")
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    auth = SigV4QueryAuth(SdkCredentials(*credentials), "elasticache", region, expires=900)
    canonical = "\n".join(["GET", "/", unsigned.partition("?")[2], "host:cache\n", "host", auth.payload(request)])
    assert signature == auth.signature(auth.string_to_sign(request, canonical), request)
