"""`spec.network`: the peers that may connect to a cluster's pods, in terms of Kubernetes' NetworkPolicy."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from gpudask.api.base import Model, Rule

MAX_PEERS = 32
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""As Kubernetes labels every namespace: https://kubernetes.io/docs/reference/labels-annotations-taints/"""
# The API server looks at the shape alone; the operator reads the range.
_CIDR_PATTERN = "^[0-9a-fA-F:.]{2,45}/[0-9]{1,3}$"
_CIDR_ADVICE = "write a range of addresses such as 10.1.0.0/16 or 2001:db8::/64"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY_PATTERN = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_KEY_ADVICE = "write a label's name such as team or kubernetes.io/metadata.name"
_VALUE_PATTERN = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_VALUE_ADVICE = "write a label's value: letters, digits, dots, hyphens and underscores, 63 at most"


def _schema(pattern: str, advice: str, *, at_most: int) -> WithJsonSchema:
    rule = {"rule": f"self.matches('{pattern}')", "message": advice}
    return WithJsonSchema({"type": "string", "maxLength": at_most, "x-kubernetes-validations": [rule]})


def _like(pattern: str, advice: str) -> AfterValidator:
    def checked(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(advice)
        return value

    return AfterValidator(checked)


def _is_range(value: str) -> str:
    if re.fullmatch(_CIDR_PATTERN, value) is None or _range(value) is None:
        raise ValueError(_CIDR_ADVICE)
    return value


def _range(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return None


def _excepts_parts(block: Any) -> bool:
    whole = _range(block.cidr)
    return all(_is_part(_range(excepted), whole) for excepted in block.except_)


def _is_part(inner: Any, whole: Any) -> bool:
    return inner.version == whole.version and inner != whole and bool(inner.subnet_of(whole))


def _are_labels(selector: Any) -> bool:
    return all(
        re.fullmatch(_KEY_PATTERN, key) and re.fullmatch(_VALUE_PATTERN, value)
        for key, value in selector.match_labels.items()
    )


Cidr = Annotated[str, AfterValidator(_is_range), _schema(_CIDR_PATTERN, _CIDR_ADVICE, at_most=49)]
LabelKey = Annotated[str, _like(_KEY_PATTERN, _KEY_ADVICE), _schema(_KEY_PATTERN, _KEY_ADVICE, at_most=317)]
LabelValue = Annotated[str, _like(_VALUE_PATTERN, _VALUE_ADVICE), _schema(_VALUE_PATTERN, _VALUE_ADVICE, at_most=63)]


class IPBlock(Model):
    """A range of addresses, as in a NetworkPolicy."""

    rules = (
        Rule(
            None,
            "each range in except lies inside cidr and is smaller: write for example 10.1.2.0/24 inside 10.1.0.0/16",
            _excepts_parts,
            ".except",
        ),
    )

    cidr: Annotated[Cidr, Field(description="such as 10.1.0.0/16")]
    except_: Annotated[
        list[Cidr],
        Field(default_factory=list, alias="except", max_length=16, description="ranges inside it that stay out"),
    ]


class SelectorRequirement(Model):
    """A requirement of a label selector."""

    rules = (
        Rule(
            "['In', 'NotIn'].exists(o, o == self.operator) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none",
            lambda term: (term.operator in ("In", "NotIn")) == bool(term.values),
            ".values",
        ),
    )

    key: Annotated[LabelKey, Field(description="a label's name")]
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist"], Field(description="as of any label selector")]
    values: Annotated[list[LabelValue], Field(default_factory=list, max_length=32, description="of In and NotIn")]


class LabelSelector(Model):
    """A selector of pods or namespaces by their labels; an empty one selects all."""

    rules = (
        Rule(
            f"!has(self.matchLabels) || self.matchLabels.all(k, k.matches('{_KEY_PATTERN}')"
            f" && self.matchLabels[k].matches('{_VALUE_PATTERN}'))",
            "matchLabels has labels and their values: write for example team: physics",
            _are_labels,
            ".matchLabels",
        ),
    )

    match_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=317)]],
        Field(default_factory=dict, max_length=16, description="all of these"),
    ]
    match_expressions: Annotated[
        list[SelectorRequirement], Field(default_factory=list, max_length=16, description="and all of these")
    ]


class Peer(Model):
    """A peer that may connect, as in a NetworkPolicy: by labels, or by address."""

    rules = (
        Rule(
            "has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",
            "a peer has ipBlock, or podSelector or namespaceSelector or both: write for example podSelector: {} for"
            " all pods of the cluster's namespace",
            lambda peer: (
                (peer.ip_block is not None) != (peer.pod_selector is not None or peer.namespace_selector is not None)
            ),
        ),
    )

    pod_selector: LabelSelector | None = Field(
        default=None, description="pods of the cluster's namespace, or of those that namespaceSelector selects"
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="pods of these namespaces; kubernetes.io/metadata.name is the label with the name"
    )
    ip_block: IPBlock | None = Field(default=None, description="addresses, as the cluster's nodes see them")


class Network(Model):
    """Network access to the cluster's pods."""

    allow_from: Annotated[
        list[Peer],
        Field(
            default_factory=list,
            max_length=MAX_PEERS,
            description="who may connect to the scheduler and the workers, beside the cluster's own pods and the"
            " operator. Forwarded ports always work",
        ),
    ]
