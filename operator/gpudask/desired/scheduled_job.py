"""The job that a cron job makes for one time of its schedule."""

from __future__ import annotations

from copy import deepcopy

from gpudask.api import Json, resource
from gpudask.api.cron_job import CronJob, cron_job_reference
from gpudask.api.pod_template import without_reserved


def scheduled_job(cron_job: CronJob, name: str, scheduled_time: str) -> Json:
    """The job of this name, for the time that is written as RFC 3339."""
    metadata = cron_job.spec.job_template.metadata
    return {
        "apiVersion": resource.API_VERSION,
        "kind": resource.JOB_KIND,
        "metadata": {
            "name": name,
            "namespace": cron_job.namespace,
            "labels": without_reserved(metadata.labels) | {resource.LABEL_CRON_JOB: cron_job.name},
            "annotations": without_reserved(metadata.annotations) | {resource.ANNOTATION_SCHEDULED: scheduled_time},
            "ownerReferences": [cron_job_reference(cron_job)],
        },
        "spec": deepcopy(cron_job.job_body),
    }
