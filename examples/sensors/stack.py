"""The stack: an HTTP API, two functions, and a table of sensor readings."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

import hotpartition
from hotpartition_cdk import HotPartition, HotPartitionOptions

FUNCTIONS = Path(__file__).parent / "functions"
PATTERNS = ("adaptive", "random", "calculated", "buckets")
INDEX = "by-hour"

READ = ("BatchGetItem", "DescribeTable", "GetItem", "Query")
WRITE = (*READ, "BatchWriteItem", "PutItem")


class Sensors(cdk.Stack):
    """Readings of sensors at many sites, any of which may suddenly send a hundred times as many."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        pattern: str,
        options: HotPartitionOptions,
        settings: Mapping[str, object],
    ) -> None:
        super().__init__(scope, id_)
        python = options.target.python_version.replace(".", "_")
        self._runtime = getattr(lambda_.Runtime, f"PYTHON_{python}")
        is_arm = options.target.architecture == "arm64"
        self._architecture = lambda_.Architecture.ARM_64 if is_arm else lambda_.Architecture.X86_64
        table = self._make_table(has_index=pattern in {"adaptive", "buckets"})
        environment = {"TABLE_NAME": table.table_name, "PATTERN": pattern}
        ingest = self._make_function("Ingest", environment)
        reads = self._make_function("Reads", environment)
        if pattern == "adaptive":
            HotPartition(
                self,
                "HotPartition",
                table=table,
                functions=[ingest],
                readers=[reads],
                indexes=[INDEX],
                is_joining=True,
                options=options,
                settings=settings,
            )
        else:
            self._share_library(table, ingest, reads)
        self._make_api(ingest, reads)

    def _make_table(self, *, has_index: bool) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "Readings",
            partition_key=dynamodb.Attribute(name="Site", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="TakenAt", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        if has_index:
            table.add_global_secondary_index(
                index_name=INDEX,
                partition_key=dynamodb.Attribute(name="SiteHour", type=dynamodb.AttributeType.STRING),
                sort_key=dynamodb.Attribute(name="TakenAt", type=dynamodb.AttributeType.STRING),
            )
        return table

    def _make_function(self, name: str, environment: Mapping[str, str]) -> lambda_.Function:
        log_group = self._make_log_group(f"{name}Log")
        role = iam.Role(self, f"{name}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            name,
            code=lambda_.Code.from_asset(str(FUNCTIONS), exclude=["__pycache__"]),
            handler=f"{name.lower()}.handler",
            runtime=self._runtime,
            architecture=self._architecture,
            memory_size=1769,
            timeout=cdk.Duration.seconds(10),
            environment=dict(environment),
            log_group=log_group,
            role=role,
        )
        reason = "The newest Python that the library is tested on"
        cdk.Validations.of(function).acknowledge(cdk.Acknowledgment(id="AwsSolutions::AwsSolutions-L1", reason=reason))
        return function

    def _make_log_group(self, id_: str) -> logs.LogGroup:
        return logs.LogGroup(
            self, id_, retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
        )

    def _share_library(self, table: dynamodb.Table, ingest: lambda_.Function, reads: lambda_.Function) -> None:
        """Give the functions the library alone, and the table: nothing else is needed for a number that is fixed."""
        with tempfile.TemporaryDirectory() as folder:
            package = Path(hotpartition.__file__).parent
            shutil.copytree(package, Path(folder, "python", package.name), ignore=shutil.ignore_patterns("__pycache__"))
            library = lambda_.LayerVersion(self, "Library", code=lambda_.Code.from_asset(folder))
        for function, actions in ((ingest, WRITE), (reads, READ)):
            function.add_layers(library)
            iam.Grant.add_to_principal(
                grantee=function,
                actions=[f"dynamodb:{action}" for action in actions],
                resource_arns=[table.table_arn, f"{table.table_arn}/index/{INDEX}"],
            )

    def _make_api(self, ingest: lambda_.Function, reads: lambda_.Function) -> None:
        api = apigateway.HttpApi(
            self, "Api", default_authorizer=authorizers.HttpIamAuthorizer(), create_default_stage=False
        )
        for function, method, paths in (
            (ingest, apigateway.HttpMethod.POST, ("readings", "readings/batch")),
            (reads, apigateway.HttpMethod.GET, ("readings", "devices/{device}/readings", "hourly")),
        ):
            integration = integrations.HttpLambdaIntegration(function.node.id, function)
            for path in paths:
                api.add_routes(path=f"/sites/{{site}}/{path}", methods=[method], integration=integration)
        stage = api.add_stage("Stage", stage_name="$default", auto_deploy=True)
        resource = stage.node.default_child
        if isinstance(resource, apigateway.CfnStage):
            fields = ("requestId", "routeKey", "status", "responseLatency", "identity.caller")
            resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=self._make_log_group("AccessLog").log_group_arn,
                format=json.dumps({name: f"$context.{name}" for name in fields}),
            )
        cdk.CfnOutput(self, "ApiUrl", value=api.api_endpoint)
