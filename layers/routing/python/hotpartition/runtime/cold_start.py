"""Makes a function's cold start short; a handler imports this module before all others, and calls `end` at its own end.

Two things take time at a start that no request needs. Python's search for reference cycles: importing allocates some
hundred thousand objects, nearly all of which stay, and they are looked through again and again. And packages that
import all they have: see `deferred.py`.
"""

from __future__ import annotations

import gc
import os

from hotpartition.runtime.deferred import defer

gc.disable()

# redis-py names three of its classes, and `logging` asks it for the current task's name.
defer(
    "asyncio",
    {"IncompleteReadError": "exceptions", "Lock": "locks", "StreamReader": "streams", "current_task": "tasks"},
)
# pydantic looks for plugins among the installed packages: the layers bring none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
defer("importlib.metadata", functions={"entry_points"})
# redis-py's asyncio half; Powertools' resolvers for AppSync and others, and the events of twenty services.
defer("redis")
defer("redis.asyncio")
defer(
    "aws_lambda_powertools.event_handler",
    {"APIGatewayHttpResolver": "api_gateway", "ApiGatewayResolver": "api_gateway", "Response": "api_gateway"},
)
defer(
    "aws_lambda_powertools.utilities.data_classes",
    {
        "ALBEvent": "alb_event",
        "APIGatewayProxyEvent": "api_gateway_proxy_event",
        "APIGatewayProxyEventV2": "api_gateway_proxy_event",
        "BedrockAgentEvent": "bedrock_agent_event",
        "LambdaFunctionUrlEvent": "lambda_function_url_event",
        "VPCLatticeEvent": "vpc_lattice",
        "VPCLatticeEventV2": "vpc_lattice",
    },
)


def end() -> None:
    """Search for cycles as usual from now on, among what is allocated from now on.

    What was imported is left out for good: no request makes garbage of it.
    """
    gc.freeze()
    gc.enable()
