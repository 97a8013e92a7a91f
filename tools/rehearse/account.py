"""An account for rehearsals: moto's server in this process, and a plug-in for what its CloudFormation lacks.

The bootstrap stack is moto's own. Of every other stack the resources are recorded, with their properties resolved, and
nothing runs. Added here, since moto has them not, or otherwise than AWS: every type of resource; names that are taken;
creation before deletion; replacement where an identity changes; deletion policies; protection of tables and stacks;
rollback of what fails; change sets by name and stack; outputs after a change set; parameters that keep their value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from unittest.mock import patch
from urllib.request import Request, urlopen

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER, ResourceNotFoundError  # type: ignore[import-untyped]
from moto.cloudformation import models, parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import ChangeSet, CloudFormationBackend, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.common_models import CloudFormationModel
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.server import ThreadedMotoServer

BOOTSTRAP = "CDKToolkit"
NOWHERE = "http://127.0.0.1:9"
REGION = "eu-central-1"
RETAINING = ("Retain", "RetainExceptOnCreate")
FIXED = ("createOnlyProperties", "conditionalCreateOnlyProperties")
"""What a schema calls the properties that cannot be changed in place."""


class ChangeSetNotFound(ServiceException):
    """The error by which the command line sees that it has no change set to delete."""

    code = "ChangeSetNotFound"


@cache
def _read_schema(type_: str) -> Mapping[str, Any]:
    """Read CloudFormation's own schema of a type, which cfn-lint brings; empty where there is none."""
    try:
        schema: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, type_).schema
    except ResourceNotFoundError:
        return {}
    return schema


def _pick(properties: Mapping[str, Any], type_: str, *members: str) -> list[Any]:
    """Pick the properties that members of the type's schema name: None where they are not given."""
    schema = _read_schema(type_)
    paths = [path for member in members for path in schema.get(member, ())]
    return [properties.get(path.removeprefix("/properties/")) for path in paths]


@dataclass
class Account:
    """What exists, by type and name, and the type at which the next creation fails."""

    made: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    failing: str = ""
    is_bootstrapping: bool = False


ACCOUNT = Account()


class Recorded(CloudFormationModel):
    """A resource of any type, as its template describes it."""

    def __init__(self, type_: str, name: str, properties: dict[str, Any]) -> None:
        self.type = type_
        self.properties = properties
        self.physical_resource_id = name

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Whether there is an attribute: cfn-lint judges those of the templates."""
        return bool(attr)

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Build an attribute's value; no address leads anywhere."""
        return NOWHERE if attribute_name == "ApiEndpoint" else f"{self.physical_resource_id}.{attribute_name}"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: dict[str, Any], *_: object, **__: object
    ) -> Recorded:
        """Create it, unless its name is taken or this type shall fail."""
        type_, properties = cloudformation_json["Type"], cloudformation_json.get("Properties", {})
        identifier = _pick(properties, type_, "primaryIdentifier")
        name = "|".join(identifier) if identifier and all(identifier) else resource_name
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
        properties, type_ = cloudformation_json.get("Properties", {}), original_resource.type
        old, new = (_pick(each, type_, *FIXED) for each in (original_resource.properties, properties))
        if old == new:
            original_resource.properties = properties
            return original_resource
        made = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json)
        if cloudformation_json.get("UpdateReplacePolicy") not in RETAINING:
            original_resource.delete()
        return made

    def delete(self, *_: object) -> None:
        """Delete it, unless it is protected."""
        if self.properties.get("DeletionProtectionEnabled") in (True, "true"):
            raise ValidationError(message=f"{self.type} {self.physical_resource_id} is protected from deletion")
        ACCOUNT.made.pop((self.type, self.physical_resource_id), None)


_REAL_CLASS = parsing.resource_class_from_type


def _find_class(type_: str) -> Any:
    return _REAL_CLASS(type_) if ACCOUNT.is_bootstrapping else Recorded


class _Resources(parsing.ResourceMap):
    """A stack's resources, deployed in CloudFormation's order."""

    def load_parameters(self) -> None:
        """Take no value of the CDK's one parameter, the bootstrap's version: the command line checks it."""
        if ACCOUNT.is_bootstrapping:
            super().load_parameters()
            return
        self.no_echo_parameter_keys = []
        slots = self._template.get("Parameters", {})
        self.resolved_parameters |= {name: slot.get("Default") for name, slot in slots.items()}

    def update(self, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
        """Create and change, and only then delete; what is retained is left alone."""
        old, differing = self._resource_json_map, self.build_resource_diff(template, parameters)
        self._template, self._resource_json_map = template, template["Resources"]
        self.load_mapping()
        self.load_parameters()
        self.load_conditions()
        parsed, place = self._parsed_resources, (self._account_id, self._region_name)
        for name in differing["Add"]:
            _ = self[name]
        for name in differing["Modify"]:
            parsed[name] = parsing.parse_and_update_resource(name, template["Resources"][name], self, *place)
        for name in differing["Remove"]:
            resource = parsed.pop(name, None)
            if resource is not None and old[name].get("DeletionPolicy") not in RETAINING:
                resource.delete()

    def delete(self, kept: tuple[str, ...] = RETAINING) -> None:
        """Delete all that is there, but what is to be kept."""
        left = {}
        for name, template in reversed(self._resource_json_map.items()):
            resource = self._parsed_resources.get(name)
            if resource is None:
                continue
            if template.get("DeletionPolicy") in kept:
                left[name] = template
            else:
                resource.delete()
                self._parsed_resources.pop(name)
        # What is listed is made, if it is not there.
        self._resource_json_map = left


def _execute(backend: CloudFormationBackend, change_set_name: str, **_: object) -> None:
    """Execute a change set, and forget it; what fails is taken back."""
    change_set = backend.change_sets.pop(_find(backend, change_set_name).change_set_id)
    stack, kind = change_set.stack, change_set.change_set_type
    ACCOUNT.is_bootstrapping = stack.name == BOOTSTRAP
    old, resources = stack.template_dict, cast("_Resources", stack.resource_map)
    stack._add_stack_event(f"{kind}_IN_PROGRESS", resource_status_reason="User Initiated")  # noqa: SLF001
    try:
        change_set.apply()
        stack.template, stack.template_dict = change_set.template, change_set.template_dict
        stack.output_map = stack._create_output_map()  # noqa: SLF001
        stack.status = f"{kind}_COMPLETE"
    except ServiceException as error:
        stack._add_stack_event(f"{kind}_FAILED", resource_status_reason=error.message)  # noqa: SLF001
        if kind == "CREATE":
            resources.delete(kept=("Retain",))
        else:
            resources.update(old)
        stack.status = "ROLLBACK_COMPLETE" if kind == "CREATE" else "UPDATE_ROLLBACK_COMPLETE"
    stack._add_stack_event(stack.status)  # noqa: SLF001


def _find(backend: CloudFormationBackend, change_set_name: str) -> ChangeSet:
    """Find a change set by its id or name: there is one at a time, since each is forgotten once it is executed."""
    for change_set in backend.change_sets.values():
        if change_set_name in (change_set.change_set_id, change_set.change_set_name):
            return change_set
    raise ChangeSetNotFound(f"ChangeSet [{change_set_name}] does not exist")


def _delete_change_set(backend: CloudFormationBackend, change_set_name: str) -> None:
    """Delete a change set; that there is none is no error."""
    with suppress(ChangeSetNotFound):
        del backend.change_sets[_find(backend, change_set_name).change_set_id]


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


@contextmanager
def open_account() -> Iterator[tuple[Account, str]]:
    """Start moto's server with the plug-in on a free port of loopback; yields the account and its address."""
    ACCOUNT.made.clear()
    ACCOUNT.failing = ""
    changes: tuple[tuple[Any, str, Any], ...] = (
        (CloudFormationBackend, "execute_change_set", _execute),
        (CloudFormationBackend, "describe_change_set", _find),
        (CloudFormationBackend, "delete_change_set", _delete_change_set),
        (CloudFormationBackend, "delete_stack", _delete_stack),
        (models, "ResourceMap", _Resources),
        (parsing, "resource_class_from_type", _find_class),
    )
    added = (CloudFormationResponse, "update_termination_protection", _update_termination_protection)
    with patch.object(*added, create=True), ExitStack() as stack:
        for change in changes:
            stack.enter_context(patch.object(*change))
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        # By this name alone moto finds the bucket in the address of a template.
        url = f"http://localhost:{server.get_host_and_port()[1]}"
        urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()  # noqa: S310 - the server above
        yield ACCOUNT, url
