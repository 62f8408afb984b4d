"""The loops of cron jobs: a pass observes, plans (`gpudask.jobs.cron`), makes jobs, and writes the status."""
