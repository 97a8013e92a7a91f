"""The CDK app: a table, a function, and the line that lets the function spread its hot keys."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_

from hotpartition_cdk import IN_BAND, HotPartition

app = cdk.App()
stack = cdk.Stack(app, "Events")
keys = {name: dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("Tenant", "At")}
table = dynamodb.TableV2(stack, "Table", partition_key=keys["Tenant"], sort_key=keys["At"])
function = lambda_.Function(
    stack,
    "Function",
    runtime=lambda_.Runtime.PYTHON_3_13,
    handler="index.handler",
    code=lambda_.Code.from_asset("function"),
    environment={"TABLE_NAME": table.table_name},
)
function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.AWS_IAM)
HotPartition(stack, "Hot", table=table, functions=[function], detection=IN_BAND)
app.synth()
