"""What pods with one GPU each do, all on one Dask cluster."""
