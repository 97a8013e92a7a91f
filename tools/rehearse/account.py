"""An account for rehearsals: moto's server in this process, and a plug-in for what its CloudFormation lacks.

The bootstrap stack is moto's own. Of every other stack the resources are recorded, with their properties resolved, and
nothing runs. Added here, since moto has them not, or otherwise than AWS: every type of resource; names that are taken;
creation before deletion; replacement where an identity changes; deletion policies; protection of tables and stacks;
rollback of what fails; change sets by name and stack; outputs after a change set; parameters that keep their value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import ChangeSet, CloudFormationBackend, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.common_models import CloudFormationModel
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.server import ThreadedMotoServer

BOOTSTRAP = "CDKToolkit"
NOWHERE = "http://127.0.0.1:9"
RETAINING = ("Retain", "RetainExceptOnCreate")

IDENTITIES = {
    "AWS::ApiGatewayV2::Api": ("ProtocolType",),
    "AWS::CloudWatch::Alarm": ("AlarmName",),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::DynamoDB::Table": ("TableName", "KeySchema"),
    "AWS::ElastiCache::ReplicationGroup": ("KmsKeyId", "Port", "AtRestEncryptionEnabled", "TransitEncryptionEnabled"),
    "AWS::ElastiCache::User": ("UserId", "UserName", "Engine"),
    "AWS::ElastiCache::UserGroup": ("UserGroupId", "Engine"),
    "AWS::Lambda::LayerVersion": ("Content", "CompatibleRuntimes", "CompatibleArchitectures", "Description"),
    "AWS::Logs::LogGroup": ("LogGroupName",),
}
"""Properties that CloudFormation cannot change in place (resource reference, "Update requires: Replacement")."""

NAMES = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::ElastiCache::User": "UserId",
    "AWS::ElastiCache::UserGroup": "UserGroupId",
    "AWS::Logs::LogGroup": "LogGroupName",
}
"""Names that are unique in account and region, where the template gives one."""


class ChangeSetNotFound(ServiceException):
    """The error by which the command line sees that it has no change set to delete."""

    code = "ChangeSetNotFound"


@dataclass
class Account:
    """What exists, by type and name, and the type at which the next creation fails."""

    made: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    failing: str = ""

    def names(self, type_: str) -> list[str]:
        """List what exists of a type."""
        return sorted(name for kind, name in self.made if kind == type_)

    def count(self) -> dict[str, int]:
        """Count what exists, by type."""
        kinds = [kind for kind, _ in self.made]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


ACCOUNT = Account()


class Recorded(CloudFormationModel):
    """A resource of any type, as its template describes it."""

    def __init__(self, type_: str, name: str, properties: dict[str, Any]) -> None:
        self.type = type_
        self.properties = properties
        self.physical_resource_id = name

    @property
    def physical_resource_id(self) -> str:
        """The name by which `Ref` refers to it."""
        return self._name

    @physical_resource_id.setter
    def physical_resource_id(self, name: str) -> None:
        self._name = name

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Whether there is an attribute: cfn-lint judges those of the templates."""
        return bool(attr)

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Build an attribute's value; no address leads anywhere."""
        return NOWHERE if attribute_name == "ApiEndpoint" else f"{self._name}.{attribute_name}"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: dict[str, Any], *_: object, **__: object
    ) -> Recorded:
        """Create it, unless its name is taken or this type shall fail."""
        type_, properties = cloudformation_json["Type"], cloudformation_json.get("Properties", {})
        name = properties.get(NAMES.get(type_, "")) or resource_name
        if ACCOUNT.failing == type_:
            ACCOUNT.failing = ""
            raise ValidationError(message=f"{type_} {name} failed, as the rehearsal asked")
        if (type_, name) in ACCOUNT.made:
            raise ValidationError(message=f"{type_} {name} already exists")
        made = cls(type_, name, properties)
        ACCOUNT.made[type_, name] = made
        return made

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[override]
        cls, original_resource: Recorded, new_resource_name: str, cloudformation_json: dict[str, Any], **_: object
    ) -> Recorded:
        """Change it in place, or create another one where its identity changes."""
        properties = cloudformation_json.get("Properties", {})
        identity = IDENTITIES.get(original_resource.type, ())
        if all(properties.get(name) == original_resource.properties.get(name) for name in identity):
            original_resource.properties = properties
            return original_resource
        made = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json)
        if cloudformation_json.get("UpdateReplacePolicy") not in RETAINING:
            original_resource.delete()
        return made

    def delete(self, *_: object) -> None:
        """Delete it, unless it is protected."""
        if self.properties.get("DeletionProtectionEnabled") in (True, "true"):
            raise ValidationError(message=f"{self.type} {self._name} is protected from deletion")
        ACCOUNT.made.pop((self.type, self._name), None)


_REAL_CLASS = parsing.resource_class_from_type


def _find_class(type_: str) -> Any:
    return _REAL_CLASS(type_) if _State.is_bootstrapping else Recorded


class _State:
    is_bootstrapping = False


def _update(resources: Any, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
    """Create and change, and only then delete, as CloudFormation does; what is retained is left alone."""
    old, differing = resources._resource_json_map, resources.build_resource_diff(template, parameters)  # noqa: SLF001
    resources._template, resources._resource_json_map = template, template["Resources"]  # noqa: SLF001
    resources.load_mapping()
    resources.load_parameters()
    resources.load_conditions()
    parsed, place = resources._parsed_resources, (resources._account_id, resources._region_name)  # noqa: SLF001
    for name in differing["Add"]:
        _ = resources[name]
    for name in differing["Modify"]:
        parsed[name] = parsing.parse_and_update_resource(name, template["Resources"][name], resources, *place)
    for name in differing["Remove"]:
        resource = parsed.pop(name, None)
        if resource is not None and old[name].get("DeletionPolicy") not in RETAINING:
            resource.delete()


def _delete(resources: Any, kept: tuple[str, ...] = RETAINING) -> None:
    left = {}
    for name, template in reversed(resources._resource_json_map.items()):  # noqa: SLF001
        resource = resources._parsed_resources.get(name)  # noqa: SLF001
        if resource is None:
            continue
        if template.get("DeletionPolicy") in kept:
            left[name] = template
        else:
            resource.delete()
            resources._parsed_resources.pop(name)  # noqa: SLF001
    # What is listed is made, if it is not there.
    resources._resource_json_map = left  # noqa: SLF001


def _execute(backend: CloudFormationBackend, change_set_name: str, stack_name: str | None = None) -> None:
    """Execute a change set; what fails is taken back."""
    change_set = _find(backend, change_set_name, stack_name)
    stack, kind = change_set.stack, change_set.change_set_type
    _State.is_bootstrapping = stack.name == BOOTSTRAP
    old = stack.template_dict
    stack._add_stack_event(f"{kind}_IN_PROGRESS", resource_status_reason="User Initiated")  # noqa: SLF001
    try:
        change_set.apply()
        stack.template, stack.template_dict = change_set.template, change_set.template_dict
        stack.output_map = stack._create_output_map()  # noqa: SLF001
        stack.status = f"{kind}_COMPLETE"
    except ServiceException as error:
        stack._add_stack_event(f"{kind}_FAILED", resource_status_reason=error.message)  # noqa: SLF001
        if kind == "CREATE":
            _delete(stack.resource_map, kept=("Retain",))
        else:
            _update(stack.resource_map, old)
        stack.status = "ROLLBACK_COMPLETE" if kind == "CREATE" else "UPDATE_ROLLBACK_COMPLETE"
    stack._add_stack_event(stack.status)  # noqa: SLF001
    change_set.execution_status = "EXECUTE_COMPLETE"


def _find(backend: CloudFormationBackend, name: str, stack_name: str | None = None) -> ChangeSet:
    """Find a change set by its id, or by its name and its stack's, the latest."""
    for change_set in reversed(backend.change_sets.values()):
        stack = change_set.stack
        if name == change_set.change_set_id or (
            name == change_set.change_set_name and stack_name in (None, stack.name, stack.stack_id)
        ):
            return change_set
    raise ChangeSetNotFound(f"ChangeSet [{name}] does not exist")


def _describe_change_set(response: CloudFormationResponse) -> ActionResult:
    found = _find(response.cloudformation_backend, *_asked(response))
    return ActionResult(found)


def _delete_change_set(response: CloudFormationResponse) -> ActionResult:
    """Delete a change set; that there is none is no error."""
    backend = response.cloudformation_backend
    with suppress(ChangeSetNotFound):
        del backend.change_sets[_find(backend, *_asked(response)).change_set_id]
    return ActionResult({})


def _asked(response: CloudFormationResponse) -> tuple[str, str | None]:
    return response._get_param("ChangeSetName"), response._get_param("StackName")  # noqa: SLF001


def _update_termination_protection(response: CloudFormationResponse) -> ActionResult:
    stack = response.cloudformation_backend.get_stack(response._get_param("StackName"))  # noqa: SLF001
    stack.enable_termination_protection = response._get_bool_param("EnableTerminationProtection")  # noqa: SLF001
    return ActionResult({"StackId": stack.stack_id})


_REAL_DELETE = CloudFormationBackend.delete_stack


def _delete_stack(backend: CloudFormationBackend, name_or_stack_id: str) -> None:
    stack: Stack = backend.get_stack(name_or_stack_id)
    if stack.enable_termination_protection:
        raise ValidationError(message=f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
    _REAL_DELETE(backend, name_or_stack_id)
    for id_ in [id_ for id_, each in backend.change_sets.items() if each.stack is stack]:
        del backend.change_sets[id_]


def _load_parameters(resources: Any) -> None:
    """Take no value of the one parameter that the CDK gives, the bootstrap's version: the command line checks it."""
    if _State.is_bootstrapping:
        _REAL_PARAMETERS(resources)
        return
    resources.no_echo_parameter_keys = []
    slots = resources._template.get("Parameters", {})  # noqa: SLF001
    resources.resolved_parameters.update({name: slot.get("Default") for name, slot in slots.items()})


_REAL_PARAMETERS = parsing.ResourceMap.load_parameters


@contextmanager
def open_account() -> Iterator[tuple[Account, str]]:
    """Start moto's server with the plug-in on a free port of loopback; yields the account and its address."""
    ACCOUNT.made.clear()
    changes: dict[type, dict[str, Any]] = {
        CloudFormationBackend: {"execute_change_set": _execute, "delete_stack": _delete_stack},
        CloudFormationResponse: {
            "describe_change_set": _describe_change_set,
            "delete_change_set": _delete_change_set,
            "update_termination_protection": _update_termination_protection,
        },
        parsing.ResourceMap: {"update": _update, "delete": _delete, "load_parameters": _load_parameters},
    }
    patches = [
        patch.object(owner, name, new, create=True) for owner, each in changes.items() for name, new in each.items()
    ]
    patches.append(patch.object(parsing, "resource_class_from_type", _find_class))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    for each in patches:
        each.start()
    server.start()
    try:
        # By this name alone moto finds the bucket in the address of a template.
        url = f"http://localhost:{server.get_host_and_port()[1]}"
        urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()  # noqa: S310 - the server above
        yield ACCOUNT, url
    finally:
        server.stop()
        for each in patches:
            each.stop()
