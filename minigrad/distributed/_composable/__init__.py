"""torch's older place of `fully_shard`: see `fsdp`."""
