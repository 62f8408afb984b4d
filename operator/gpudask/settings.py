"""The operator's settings: environment variables, read once, here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from gpudask.api import attribution, limits
from gpudask.api.base import Model, seconds
from gpudask.api.limits import Limits
from gpudask.api.pod_template import MAX_IMAGE

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_LAST_PORT = 65535
_DAY_SECONDS, _DAY_DIGITS = 86400.0, 4
_FORMATS = ("plain", "json")
_SWITCH = ("true", "false")


class SettingsError(ValueError):
    """A variable with an invalid value; the message names it and what it expects."""


class HistorySettings(Model):
    """The records of clusters, `history` of the chart.

    `keep`: for how long they stay after a cluster's end at most, as `7d` or a duration. `per_namespace`: so many of
    clusters that ended.
    """

    model_config = ConfigDict(extra="forbid")

    enabled: Annotated[bool, Field(strict=True)] = True
    keep: Annotated[str, AfterValidator(lambda text: text if _days_or_less(text) else "")] = "7d"
    per_namespace: Annotated[int, Field(strict=True, ge=1)] = 100

    @property
    def keep_seconds(self) -> float:
        """`keep` in seconds."""
        return _days_or_less(self.keep)


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings.

    `namespace`: the operator's own, with its key and its Lease. `watch_namespaces`: empty means all. `mirror`:
    whether clusters are mirrored for the stock Dask client. `lease`: of the operators that share it one leads.
    `identity`: this operator's in the Lease; empty: a new one for this process. `network_policies`: whether each
    cluster gets one. `limits`: what users may ask for. `default_image`: of clusters whose manifest names none; empty:
    there is none. `metrics_port`: None: no metrics are served. `metrics_tls`: a directory with a certificate, tls.crt,
    and its key, tls.key; empty: plain HTTP. `metrics_token`: a file with the token of those who may read them; empty:
    everybody may. `attribution`: names of the labels and annotations that say whose a cluster is. `history`: what
    stays of clusters. `version`: of this operator, as its image or its package says.
    """

    namespace: str = "default"
    watch_namespaces: tuple[str, ...] = ()
    key_secret: str = "gpudask-key"  # noqa: S105 - a name
    log_level: str = "INFO"
    log_format: str = "plain"
    health_port: int = 8080
    kubeconfig: str = ""
    mirror: bool = False
    lease: str = "gpudask"
    identity: str = ""
    network_policies: bool = True
    limits: Limits = field(default_factory=Limits)
    default_image: str = ""
    metrics_port: int | None = None
    metrics_tls: str = ""
    metrics_token: str = ""
    attribution: tuple[str, ...] = ()
    history: HistorySettings = field(default_factory=HistorySettings)
    version: str = "unknown"


def read(environment: Mapping[str, str]) -> Settings:
    """Read the settings of `environment`.

    Raises:
        SettingsError: a value is invalid.
    """
    default = Settings()
    namespaces = (name.strip() for name in environment.get("GPUDASK_WATCH_NAMESPACES", "").split(","))
    try:
        allowed = limits.read(environment.get("GPUDASK_LIMITS", ""))
    except ValueError as error:
        raise SettingsError(f"GPUDASK_LIMITS: expected the chart's limits as JSON: {error}") from error
    try:
        attributed = attribution.parse(environment.get("GPUDASK_ATTRIBUTION", ""))
    except ValueError as error:
        raise SettingsError(f"GPUDASK_ATTRIBUTION: {error}") from error
    return Settings(
        namespace=environment.get("GPUDASK_NAMESPACE") or default.namespace,
        watch_namespaces=tuple(name for name in namespaces if name),
        key_secret=environment.get("GPUDASK_KEY_SECRET") or default.key_secret,
        log_level=_one_of(environment, "GPUDASK_LOG_LEVEL", _LEVELS, default.log_level),
        log_format=_one_of(environment, "GPUDASK_LOG_FORMAT", _FORMATS, default.log_format),
        health_port=_port(environment, "GPUDASK_HEALTH_PORT", default.health_port) or 0,
        kubeconfig=environment.get("KUBECONFIG", ""),
        mirror=_one_of(environment, "GPUDASK_MIRROR", _SWITCH, "false") == "true",
        lease=environment.get("GPUDASK_LEASE") or default.lease,
        identity=environment.get("GPUDASK_IDENTITY", ""),
        network_policies=_one_of(environment, "GPUDASK_NETWORK_POLICIES", _SWITCH, "true") == "true",
        limits=allowed,
        default_image=_image(environment),
        metrics_port=_port(environment, "GPUDASK_METRICS_PORT", default.metrics_port),
        metrics_tls=environment.get("GPUDASK_METRICS_TLS", ""),
        metrics_token=environment.get("GPUDASK_METRICS_TOKEN", ""),
        attribution=attributed,
        history=_history(environment.get("GPUDASK_HISTORY", "")),
        version=environment.get("GPUDASK_VERSION") or _installed_version(default.version),
    )


def _port(environment: Mapping[str, str], name: str, default: int | None) -> int | None:
    port = environment.get(name)
    if port is None:
        return default
    if not (port.isdecimal() and int(port) <= _LAST_PORT):
        raise SettingsError(f"{name}: expected a port number, got {port!r}")
    return int(port)


def _installed_version(default: str) -> str:
    """The version of the installed package; `default` where the code was copied, as into an image made by hand."""
    try:
        return metadata.version("gpudask")
    except metadata.PackageNotFoundError:
        return default


def _history(text: str) -> HistorySettings:
    """The chart's `history` as JSON; of an empty text, the default."""
    expected = "GPUDASK_HISTORY: expected the chart's history as JSON"
    try:
        return HistorySettings.model_validate(json.loads(text) if text else {})
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, item['loc'])) or 'all of it'}: {item['msg']}" for item in error.errors())
        raise SettingsError(f"{expected}: {'; '.join(wrong)}") from error
    except ValueError as error:
        raise SettingsError(f"{expected}: {error}") from error


def _days_or_less(text: str) -> float:
    """`7d`, or a duration as everywhere else, such as `36h`, in seconds."""
    digits, unit = text[:-1], text[-1:]
    if unit == "d" and digits.isascii() and digits.isdecimal() and len(digits) <= _DAY_DIGITS:
        return int(digits) * _DAY_SECONDS
    return seconds(text)


def _image(environment: Mapping[str, str]) -> str:
    """The default image; it gets into pods and into annotations, which hold no more."""
    image = environment.get("GPUDASK_DEFAULT_IMAGE", "").strip()
    if len(image) > MAX_IMAGE or not image.isprintable() or " " in image:
        raise SettingsError(
            f"GPUDASK_DEFAULT_IMAGE: expected an image of at most {MAX_IMAGE} characters, such as"
            f" registry.example/dask:1, got {image[:80]!r}"
        )
    return image


def _one_of(environment: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = environment.get(name) or default
    match = next((choice for choice in choices if choice.lower() == value.lower()), None)
    if match is None:
        raise SettingsError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return match
