"""Tests on real GPUs: `python -m tests.gpu` prepares the machine and runs them; elsewhere they are skipped."""
