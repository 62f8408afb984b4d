"""What GPUs cost: ledgers as status and records have them, prices, and the statement made of both.

Pure: no server, no clock. `commands/cost.py` prints it, `report` draws it.
"""
