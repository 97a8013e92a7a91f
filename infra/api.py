"""The HTTP API in front of the writer and the reader."""

from __future__ import annotations

import json
from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.environments import ApiOptions

MESSAGES_PATH = "/conversations/{conversation_id}/messages"
MESSAGE_PATH = MESSAGES_PATH + "/{message_id}"

STAGE = "$default"

_ACCESS_LOG_FORMAT = {
    "request_id": "$context.requestId",
    "requested_at_ms": "$context.requestTimeEpoch",
    "route": "$context.routeKey",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "integration_latency_ms": "$context.integrationLatency",
    "integration_error": "$context.integrationErrorMessage",
    "authorizer_error": "$context.authorizer.error",
    "response_bytes": "$context.responseLength",
}
"""The route and not the path: conversation ids may name people."""

_AUTHORIZER_IDENTITY = ["$request.header.Authorization", "$context.routeKey"]
"""Cache key of a Lambda authorizer's decision: one on reading does not hold for writing."""

_CORS_HEADERS = [
    *("authorization", "content-type", "if-match", "if-none-match"),
    *("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"),
]
"""Headers that a page sends: a body's type, and a token or a signature."""


class MessageApi(Construct):
    """Routes to the functions, throttled before they cost an invocation.

    Callers sign with IAM, bring a token (JWT), or are judged by a Lambda authorizer of the deployment's owner.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        writer: lambda_.IFunction,
        reader: lambda_.IFunction,
        options: ApiOptions,
        access_log: logs.ILogGroup,
    ) -> None:
        super().__init__(scope, id_)
        self._options = options
        api = apigateway.HttpApi(
            self,
            "HttpApi",
            description="hotpartition: messages of conversations",
            create_default_stage=False,
            default_authorizer=self._authorizer(),
            # A firewall before a domain must not be bypassed.
            disable_execute_api_endpoint=options.domain is not None or None,
            cors_preflight=self._cors(),
        )
        methods = apigateway.HttpMethod
        writing = integrations.HttpLambdaIntegration("Writing", writer), (options.write_rate, options.write_burst)
        reading = integrations.HttpLambdaIntegration("Reading", reader), (options.read_rate, options.read_burst)
        made: list[apigateway.HttpRoute] = []
        limits: dict[str, tuple[int, int]] = {}
        for method, path, scopes, (integration, limit) in (
            (methods.POST, MESSAGES_PATH, options.write_scopes, writing),
            (methods.PATCH, MESSAGE_PATH, options.change_scopes, writing),
            (methods.DELETE, MESSAGE_PATH, options.change_scopes, writing),
            (methods.GET, MESSAGES_PATH, options.read_scopes, reading),
            (methods.GET, MESSAGE_PATH, options.read_scopes, reading),
        ):
            allowed = list(scopes) or None
            made += api.add_routes(path=path, methods=[method], integration=integration, authorization_scopes=allowed)
            limits[f"{method.value} {path}"] = limit
        self._add_stage(api, limits, access_log).node.add_dependency(*made)
        self.url = api.api_endpoint if options.domain is None else f"https://{options.domain}"
        self.api_id = api.api_id

    def _authorizer(self) -> apigateway.IHttpRouteAuthorizer:
        if self._options.jwt_issuer is not None:
            return authorizers.HttpJwtAuthorizer(
                "Tokens", self._options.jwt_issuer, jwt_audience=list(self._options.jwt_audience)
            )
        if self._options.authorizer_arn is not None:
            return authorizers.HttpLambdaAuthorizer(
                "Callers",
                lambda_.Function.from_function_attributes(
                    self, "Authorizer", function_arn=self._options.authorizer_arn, same_environment=True
                ),
                response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
                identity_source=_AUTHORIZER_IDENTITY,
                results_cache_ttl=cdk.Duration.seconds(self._options.authorizer_cache_seconds),
            )
        return authorizers.HttpIamAuthorizer()

    def _cors(self) -> apigateway.CorsPreflightOptions | None:
        if not self._options.cors_origins:
            return None
        methods = apigateway.CorsHttpMethod
        return apigateway.CorsPreflightOptions(
            allow_origins=list(self._options.cors_origins),
            allow_methods=[methods.GET, methods.POST, methods.PATCH, methods.DELETE],
            allow_headers=_CORS_HEADERS,
            # How long a refused writer should wait, the value for an editor's `If-Match`, and how old a page is.
            expose_headers=["age", "etag", "retry-after"],
            max_age=cdk.Duration.hours(1),
        )

    def _add_stage(
        self, api: apigateway.HttpApi, limits: Mapping[str, tuple[int, int]], access_log: logs.ILogGroup
    ) -> apigateway.HttpStage:
        """Add the stage; `limits` are rate and burst by route, in the words of API Gateway's metrics."""
        stage = apigateway.HttpStage(self, "Stage", http_api=api, stage_name=STAGE, auto_deploy=True)
        resource = stage.node.default_child
        if not isinstance(resource, apigateway.CfnStage):
            raise TypeError("the stage's resource is not its default child")
        # The L2 properties take interfaces that Python cannot fill with plain values, or know no single routes.
        log_format = json.dumps({**_ACCESS_LOG_FORMAT, "caller": self._caller()})
        resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=access_log.log_group_arn, format=log_format
        )
        # A route that is added and has no limit yet gets the strictest.
        rate, burst = map(min, zip(*limits.values(), strict=True))
        resource.default_route_settings = apigateway.CfnStage.RouteSettingsProperty(
            throttling_rate_limit=rate,
            throttling_burst_limit=burst,
            detailed_metrics_enabled=self._options.has_route_metrics or None,
        )
        # Only routes that differ from the default. A stage that names a route which a failed deployment took away
        # cannot be rolled back, and stays in `UPDATE_ROLLBACK_FAILED`.
        own_settings = {
            key: {"ThrottlingRateLimit": limit[0], "ThrottlingBurstLimit": limit[1]}
            for key, limit in limits.items()
            if limit != (rate, burst)
        }
        resource.route_settings = own_settings or None
        return stage

    def _caller(self) -> str:
        if self._options.jwt_issuer is not None:
            return "$context.authorizer.claims.sub"
        if self._options.authorizer_arn is not None:
            return f"$context.authorizer.{self._options.sender_claim or 'principalId'}"
        return "$context.identity.userArn"
