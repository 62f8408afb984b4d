"""Cron jobs: the times of a schedule, what is there of a cron job -> what to do, and its status. Values only."""
