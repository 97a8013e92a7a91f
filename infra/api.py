"""The HTTP API in front of the writer and the reader."""

from __future__ import annotations

import json

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

MESSAGES_PATH = "/conversations/{conversation_id}/messages"

_ACCESS_LOG_FORMAT = {
    "request_id": "$context.requestId",
    "requested_at_ms": "$context.requestTimeEpoch",
    "route": "$context.routeKey",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "integration_latency_ms": "$context.integrationLatency",
    "integration_error": "$context.integrationErrorMessage",
    "response_bytes": "$context.responseLength",
    "caller": "$context.identity.userArn",
}
"""The route and not the path: conversation ids may say who talks to whom."""


class MessageApi(Construct):
    """Routes to the functions, signed requests only (IAM) and throttled before they cost an invocation."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        writer: lambda_.IFunction,
        reader: lambda_.IFunction,
        rate_limit: int,
        burst_limit: int,
        access_log: logs.ILogGroup,
    ) -> None:
        super().__init__(scope, id_)
        api = apigateway.HttpApi(
            self,
            "HttpApi",
            description="hotpartition: messages of conversations",
            create_default_stage=False,
            default_authorizer=authorizers.HttpIamAuthorizer(),
        )
        writing = integrations.HttpLambdaIntegration("Writing", writer)
        reading = integrations.HttpLambdaIntegration("Reading", reader)
        api.add_routes(path=MESSAGES_PATH, methods=[apigateway.HttpMethod.POST], integration=writing)
        api.add_routes(path=MESSAGES_PATH, methods=[apigateway.HttpMethod.GET], integration=reading)
        api.add_routes(path=MESSAGES_PATH + "/{message_id}", methods=[apigateway.HttpMethod.GET], integration=reading)
        self._add_stage(api, rate_limit, burst_limit, access_log)
        self.url = api.api_endpoint

    def _add_stage(
        self, api: apigateway.HttpApi, rate_limit: int, burst_limit: int, access_log: logs.ILogGroup
    ) -> None:
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=api,
            stage_name="$default",
            auto_deploy=True,
            detailed_metrics_enabled=True,
            throttle=apigateway.ThrottleSettings(rate_limit=rate_limit, burst_limit=burst_limit),
        )
        resource = stage.node.default_child
        if not isinstance(resource, apigateway.CfnStage):
            raise TypeError("the stage's resource is not its default child")
        # The L2 property takes an interface that Python cannot fill with a plain value.
        resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=access_log.log_group_arn, format=json.dumps(_ACCESS_LOG_FORMAT)
        )
